package sharding

import "testing"

func TestClassify(t *testing.T) {
	known := knownMember{version: "7", usable: true, data: memberData{ID: "a", Sequence: 3}}
	marked, goneOne, unusable, unseen := known, known, known, knownMember{}
	marked.data.Dead = true
	goneOne.isGone = true
	unusable.usable = false
	for _, c := range []struct {
		what          string
		k             knownMember
		version       string
		sequence      int64
		kind          string // of the record: dead, unusable or neither
		byWatch, read verdict
	}{
		{"the known record", known, "7", 3, "", nothingNew, nothingNew},
		{"a renewal", known, "8", 4, "", changed, changed},
		{"an edit by hand", known, "8", 3, "", changed, changed},
		{"an older record", known, "6", 2, "", nothingNew, changed},
		{"the version again, with other data", known, "7", 4, "", changed, changed},
		{"a mark", known, "8", 3, "dead", changed, changed},
		{"the mark of an older record", known, "8", 2, "dead", changed, changed},
		{"a record that became unusable", known, "8", 0, "unusable", changed, changed},
		{"the known unusable record", unusable, "7", 0, "unusable", nothingNew, nothingNew},
		{"a record that became usable", unusable, "8", 2, "", changed, changed},
		{"the known mark", marked, "7", 3, "dead", nothingNew, nothingNew},
		{"a marked record without its mark", marked, "6", 2, "", doubtful, changed},
		{"a marked record that became unusable", marked, "8", 0, "unusable", changed, changed},
		{"the last record of a gone member", goneOne, "7", 3, "", doubtful, changed},
		{"a later record of a gone member", goneOne, "8", 4, "", doubtful, changed},
		{"an unusable record of a gone member", goneOne, "8", 0, "unusable", doubtful, changed},
		{"the first record of a member", unseen, "1", 1, "", changed, changed},
		{"an unusable first record", unseen, "1", 0, "unusable", changed, changed},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := memberData{ID: "a", Sequence: c.sequence, Dead: c.kind == "dead"}
			usable := c.kind != "unusable"
			if v := c.k.classify(c.version, d, usable, false); v != c.byWatch {
				t.Errorf("shown by a watch it is %v, not %v", v, c.byWatch)
			}
			if v := c.k.classify(c.version, d, usable, true); v != c.read {
				t.Errorf("shown by a read it is %v, not %v", v, c.read)
			}
		})
	}
}
