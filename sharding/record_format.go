package sharding

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// formatVersion is the newest format of records that this version of the library knows. It refuses newer
// ones. Fields that it does not know it ignores, and drops when it writes the table or marks a record. So a
// new field of the table needs a new format.
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
	// Replaces: the member that made this table knew another one, perhaps a damaged one.
	Replaces bool              `json:"replaces,omitempty"`
	Hashes   map[string]string `json:"hashes,omitempty"`

	// Members are numbered in this order. Holders and Next have the number of each slot's holder, and of the
	// next one if it is to move, or -1. Ages says how many epochs ago the slot got its holder.
	Members []string `json:"members"`
	Holders []int    `json:"holders"`
	Next    []int    `json:"next"`
	Ages    []int64  `json:"ages"`
}

func (t *table) encode() string {
	d := tableData{
		Format: formatVersion, ID: t.id, Settling: t.settling, Leaving: t.leaving,
		Slots: len(t.slots), Epoch: t.epoch, Members: []string{},
		Replaces: t.replaces, Hashes: t.hashes}
	numbers := map[string]int{"": -1}
	number := func(member string) int {
		if _, ok := numbers[member]; !ok {
			numbers[member] = len(d.Members)
			d.Members = append(d.Members, member)
		}
		return numbers[member]
	}
	for _, slot := range t.slots {
		d.Holders = append(d.Holders, number(slot.holder))
		d.Next = append(d.Next, number(slot.next))
		d.Ages = append(d.Ages, t.epoch-slot.epoch)
	}
	return encode(d)
}

// decodeTable returns the table of a record for a group of that many slots. Its error says what to do.
func decodeTable(r Record, slots int) (*table, error) {
	var d tableData
	if err := decodeRecord(r, &d, &d.Format); err != nil {
		return nil, err
	}
	if d.ID == "" || d.Epoch < 0 || d.Epoch > maxEpoch || d.Slots < 1 ||
		len(d.Holders) != d.Slots || len(d.Next) != d.Slots || len(d.Ages) != d.Slots {
		return nil, unreadable(r, fmt.Errorf("table %q, epoch %d, %d slots", d.ID, d.Epoch, len(d.Holders)))
	}
	if d.Slots != slots {
		return nil, otherSlots(r, d.Slots, slots)
	}
	t := &table{
		id: d.ID, epoch: d.Epoch, settling: d.Settling, leaving: d.Leaving, replaces: d.Replaces,
		hashes: d.Hashes, slots: make([]tableSlot, slots)}
	for i := range t.slots {
		holder, knowsHolder := d.member(d.Holders[i])
		next, knowsNext := d.member(d.Next[i])
		if !knowsHolder || !knowsNext || d.Ages[i] < 0 || d.Ages[i] > d.Epoch {
			return nil, unreadable(r, fmt.Errorf("slot %d", i))
		}
		t.slots[i] = tableSlot{holder, next, d.Epoch - d.Ages[i]}
	}
	return t, nil
}

// member returns the id of a member by its number.
func (d *tableData) member(number int) (id string, ok bool) {
	switch {
	case number == -1:
		return "", true
	case number < 0 || number >= len(d.Members):
		return "", false
	}
	return d.Members[number], d.Members[number] != ""
}

// memberData is a member as its record has it.
type memberData struct {
	Format int    `json:"format"`
	ID     string `json:"member"`
	// Sequence counts the member's attempts to write this record.
	Sequence int64 `json:"sequence"`
	// Lease is how long the member lives after a write, in nanoseconds.
	Lease int64 `json:"lease"`
	Slots int   `json:"slots"` // how many the group has
	// Table is the last table that the member has seen and can use. It holds slots by no other.
	Table string `json:"table,omitempty"`
	// Epoch is the greatest that the member has seen, in any table.
	Epoch int64 `json:"epoch,omitempty"`
	// Dead: the member's life has ended. Another one has set this after a lease without a renewal, or the
	// member itself when it left.
	Dead bool `json:"dead,omitempty"`
	// Queues is how many queues the member has, if it has all that its program makes. At 0 it takes no slots.
	Queues int `json:"queues,omitempty"`
}

func decodeMember(r Record) (memberData, error) {
	var d memberData
	if err := decodeRecord(r, &d, &d.Format); err != nil {
		return d, err
	}
	if d.ID == "" || d.Lease <= 0 || d.Lease > int64(maxLease) || d.Epoch < 0 || d.Epoch > maxEpoch {
		return d, unreadable(r, fmt.Errorf("member %q, epoch %d, lease %v", d.ID, d.Epoch, time.Duration(d.Lease)))
	}
	return d, nil
}

// encode returns the JSON of a tableData or memberData.
func encode(d any) string {
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // Strings and numbers can always be encoded.
	}
	return string(data)
}

func decodeRecord(r Record, d any, format *int) error {
	err := json.Unmarshal([]byte(r.Data), d)
	switch {
	case *format > formatVersion: // Of a newer one only the number is sure to be readable.
		return fmt.Errorf("%w: %s has format %d, and this version of the library understands %d: "+
			"upgrade this replica, or roll the others back", ErrIncompatible, r.Name, *format, formatVersion)
	case err != nil:
		return unreadable(r, err)
	case *format < 1:
		return unreadable(r, fmt.Errorf("format %d", *format))
	}
	return nil
}

// errDamaged is in the errors for records with their group's label whose data nobody can read.
var errDamaged = errors.New("damaged record")

// unreadable is the error for data that this library has not written. Leases of others lack the label of the
// group whose record they would be.
func unreadable(r Record, err error) error {
	if r.Name == r.Group+"-table" || strings.HasPrefix(r.Name, r.Group+"-member-") {
		return fmt.Errorf("%w: %s: %w", errDamaged, r.Name, err)
	}
	return fmt.Errorf("%w: %s is not a record of this library (%w): "+
		"use another group, or delete it, after which all slots rest for a lease", ErrIncompatible, r.Name, err)
}

// otherSlots is the error for the record of a member or a table with another number of slots.
func otherSlots(r Record, theirs, ours int) error {
	return fmt.Errorf("%w: %s divides keys into %d slots, and this replica into %d: "+
		"to change Slots, stop all replicas and delete the group's Leases, or use another group",
		ErrIncompatible, r.Name, theirs, ours)
}
