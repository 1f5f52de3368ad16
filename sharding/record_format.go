package sharding

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// formatVersion is the newest format of records that this version of the library knows. It reads all older
// ones. A change that older members may ignore adds a field, and the number stays: members keep fields that
// they do not know in all records that they write again. A change that they must not ignore takes the next
// number, which a table gets when no older member lives; its members refuse older ones that come later. See
// TestRollingUpdateOfFormats.
const formatVersion = 1

const maxSlots = 4096                              // A table stays below 64 KB. A Lease has room for 256 KB.
const maxEpoch, maxLease = 1 << 53, 24 * time.Hour // Beyond, epochs could overflow, and members wait forever.

// tableData is a table as its record has it.
type tableData struct {
	Format   int      `json:"format"`
	ID       string   `json:"table"`
	Settling bool     `json:"settling,omitempty"`
	Leaving  []string `json:"leaving,omitempty"`
	Slots    int      `json:"slots"`
	Epoch    int64    `json:"epoch"`
	// Replaces: the member that made this table knew an earlier one.
	Replaces bool              `json:"replaces,omitempty"`
	Hashes   map[string]string `json:"hashes,omitempty"`

	Members []string `json:"members"`
	// Holders has a word for each run of equal slots, in order: the number of the holder in Members, or "-";
	// ">" and the number of the next holder, if the slot is to move; "@" and how many epochs ago it got its
	// holder; "*" and the length of the run, if that is not 1. For example "0@3*64 0>2@3 -@1".
	Holders string `json:"holders"`
}

func (t *table) encode() string {
	d := tableData{
		Format: formatVersion, ID: t.id, Settling: t.settling, Leaving: t.leaving,
		Slots: len(t.slots), Epoch: t.epoch, Members: []string{},
		Replaces: t.replaces, Hashes: t.hashes}
	numbers := map[string]string{"": "-"}
	number := func(member string) string {
		if numbers[member] == "" {
			numbers[member] = strconv.Itoa(len(d.Members))
			d.Members = append(d.Members, member)
		}
		return numbers[member]
	}
	var words []string
	for s := 0; s < len(t.slots); {
		slot, run := t.slots[s], 1
		for s+run < len(t.slots) && t.slots[s+run] == slot {
			run++
		}
		word := number(slot.holder)
		if slot.next != "" {
			word += ">" + number(slot.next)
		}
		word += "@" + strconv.FormatInt(t.epoch-slot.epoch, 10)
		if run > 1 {
			word += "*" + strconv.Itoa(run)
		}
		words = append(words, word)
		s += run
	}
	d.Holders = strings.Join(words, " ")
	return encode(d, t.unknown)
}

// decodeTable returns the table of a record for a group of that many slots. Its error says what to do.
func decodeTable(r Record, slots int) (*table, error) {
	var d tableData
	if err := decodeRecord(r, &d, &d.Format); err != nil {
		return nil, err
	}
	if d.Slots != slots {
		return nil, otherSlots(r, d.Slots, slots)
	}
	if d.Epoch < 0 || d.Epoch > maxEpoch {
		return nil, foreign(r, fmt.Errorf("epoch %d", d.Epoch))
	}
	t := &table{
		id: d.ID, epoch: d.Epoch, settling: d.Settling, leaving: d.Leaving, replaces: d.Replaces,
		hashes: d.Hashes, unknown: unknownFields(r, d), slots: make([]tableSlot, 0, slots)}
	for word := range strings.FieldsSeq(d.Holders) {
		slot, run, ok := d.parse(word)
		if !ok || run > slots-len(t.slots) {
			return nil, foreign(r, fmt.Errorf("%q", word))
		}
		t.slots = append(t.slots, slices.Repeat([]tableSlot{slot}, run)...)
	}
	if len(t.slots) != slots || t.id == "" {
		return nil, foreign(r, fmt.Errorf("table %q with %d slots", t.id, len(t.slots)))
	}
	return t, nil
}

// parse reads a word of Holders.
func (d *tableData) parse(word string) (slot tableSlot, run int, ok bool) {
	word, length, isRun := strings.Cut(word, "*")
	if run = 1; isRun {
		run, _ = strconv.Atoi(length) // 0 if it is no number
	}
	word, age, ok := strings.Cut(word, "@")
	n, err := strconv.ParseInt(age, 10, 64)
	if !ok || err != nil || n < 0 || n > d.Epoch || run < 1 {
		return slot, 0, false
	}
	slot.epoch = d.Epoch - n
	holder, next, moves := strings.Cut(word, ">")
	slot.holder, ok = d.member(holder)
	if ok && moves {
		slot.next, ok = d.member(next)
	}
	return slot, run, ok
}

func (d *tableData) member(number string) (string, bool) {
	if number == "-" {
		return "", true
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(d.Members) || d.Members[n] == "" {
		return "", false
	}
	return d.Members[n], true
}

// memberData is a member as its record has it.
type memberData struct {
	Format int    `json:"format"`
	ID     string `json:"member"`
	// Sequence counts the member's attempts to write this record.
	Sequence int64 `json:"sequence"`
	// Lease is how long the member lives after a write, in nanoseconds.
	Lease int64 `json:"lease"`
	// Slots is how many slots the group has. Hashes names each queue's hash, by its name.
	Slots  int               `json:"slots"`
	Hashes map[string]string `json:"hashes,omitempty"`
	// Table is the last table that the member has seen and can use. It holds slots by no other.
	Table string `json:"table,omitempty"`
	// Epoch is the greatest that the member has seen, in any table.
	Epoch int64 `json:"epoch,omitempty"`
	// Dead: the member's life has ended. Another one has set this after a lease without a renewal, or the
	// member itself when it left or gave up.
	Dead bool `json:"dead,omitempty"`
	// Queues is how many queues the member has, if it has all that its program makes. At 0 it takes no slots.
	Queues int `json:"queues,omitempty"`

	unknown map[string]json.RawMessage
}

func decodeMember(r Record) (memberData, error) {
	var d memberData
	if err := decodeRecord(r, &d, &d.Format); err != nil {
		return d, err
	}
	if d.ID == "" || d.Lease <= 0 || d.Lease > int64(maxLease) || d.Epoch < 0 || d.Epoch > maxEpoch {
		return d, foreign(r, fmt.Errorf("member %q, epoch %d, lease %v", d.ID, d.Epoch, time.Duration(d.Lease)))
	}
	d.unknown = unknownFields(r, d)
	return d, nil
}

// encode returns the JSON of a tableData or memberData, with the unknown fields that the record had before.
func encode(d any, unknown map[string]json.RawMessage) string {
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // Strings and numbers can always be encoded.
	}
	if len(unknown) > 0 {
		more, _ := json.Marshal(unknown) // It was JSON before.
		data = append(append(data[:len(data)-1], ','), more[1:]...)
	}
	return string(data)
}

// unknownFields returns the fields of a record that d, a tableData or memberData, does not have.
func unknownFields(r Record, d any) (fields map[string]json.RawMessage) {
	_ = json.Unmarshal([]byte(r.Data), &fields) // It was decoded before.
	for _, f := range reflect.VisibleFields(reflect.TypeOf(d)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(fields, name)
	}
	return fields
}

func decodeRecord(r Record, d any, format *int) error {
	err := json.Unmarshal([]byte(r.Data), d)
	switch {
	case *format > formatVersion: // Of a newer one only the number is sure to be readable.
		return fmt.Errorf("%w: %s has format %d, and this version of the library understands %d: "+
			"upgrade this replica, or roll the others back", ErrIncompatible, r.Name, *format, formatVersion)
	case err != nil:
		return foreign(r, err)
	case *format < 1:
		return foreign(r, fmt.Errorf("format %d", *format))
	}
	return nil
}

// foreign is the error for a record that something else has written.
func foreign(r Record, err error) error {
	return fmt.Errorf("%w: %s is not a record of this library (%w): "+
		"use another group, or delete it, after which all slots rest for a lease", ErrIncompatible, r.Name, err)
}

// otherSlots is the error for the record of a member or a table with another number of slots.
func otherSlots(r Record, theirs, ours int) error {
	return fmt.Errorf("%w: %s divides keys into %d slots, and this replica into %d: "+
		"to change Slots, stop all replicas and delete the group's Leases, or use another group",
		ErrIncompatible, r.Name, theirs, ours)
}
