package debug

// cell is a number in a table, or a tile above it.
type cell struct {
	Label, Text string
	// Class is how much the number deserves attention: bad, warn, none or "".
	Class string
	// Href is what a tile links to.
	Href string
}

// newCell returns a cell with a number or a text. Of the classes it gets the first, unless there is nothing.
func newCell(label string, value any, class ...string) cell {
	text, isText := value.(string)
	if !isText {
		text = number(value)
	}
	c := cell{Label: label, Text: text}
	switch {
	case text == "0" || text == "–" || text == "":
		c.Class = "none"
	case len(class) > 0:
		c.Class = class[0]
	}
	return c
}

// newTile is newCell for a tile, which nothing makes pale.
func newTile(label, href string, value any, class ...string) cell {
	c := newCell(label, value, class...)
	if c.Href = href; c.Class == "none" {
		c.Class = ""
	}
	return c
}
