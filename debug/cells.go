package debug

import (
	"fmt"
	"time"
)

// cell is a number in a table, or a tile above it.
type cell struct {
	Label, Text string
	// Class is how much the number deserves attention: bad, warn, none or "".
	Class string
	// Note is text beside the number, and Href what a tile links to.
	Note, Href string
}

// newCell returns a cell with a number or a text. Of the classes it gets the first, unless there is nothing.
func newCell(label string, value any, class ...string) cell {
	c := cell{Label: label}
	if text, ok := value.(string); ok {
		c.Text = text
	} else {
		c.Text = number(value)
	}
	switch {
	case c.Text == "0" || c.Text == "–" || c.Text == "":
		c.Class = "none"
	case len(class) > 0:
		c.Class = class[0]
	}
	return c
}

// timeCell returns a cell with a duration, in the color of its level.
func timeCell(label string, s seconds) cell {
	return cell{Label: label, Text: human(time.Duration(s)), Class: level(s)}
}

// unknown returns cells without numbers. Absent ones are left out on a narrow screen.
func unknown(class string, labels ...string) []cell {
	return mapped(labels, func(label string) cell { return cell{Label: label, Text: "–", Class: class} })
}

// Cells returns the numbers of the queue's row in the list. See listPage.Columns.
func (q queueReport) Cells() (cells []cell) {
	if q.HasQueue {
		inWork := cell{Label: "In work", Text: number(q.InWork)}
		if q.Held > 0 {
			inWork.Note = number(q.Held) + " on hold"
		} else if q.InWork == 0 {
			inWork.Class = "none"
		}
		cells = append(cells, newCell("Queued", q.Queued), inWork, newCell("Waiting", q.Waiting))
	} else {
		cells = append(cells, unknown("none", "Queued", "In work", "Waiting")...)
	}
	if q.Timed {
		oldest := timeCell("Oldest queued", q.OldestQueued)
		if q.Unworked {
			oldest.Class = ""
		}
		cells = append(cells, oldest, timeCell("Longest in work", q.LongestRunning))
	} else {
		cells = append(cells, unknown("none absent", "Oldest queued", "Longest in work")...)
	}
	cells = append(cells, newCell("Adds/s", perSecondText(q.Minute.Adds)),
		newCell("Dones/s", perSecondText(q.Minute.Dones)))
	if len(q.Pools) == 0 {
		return append(cells, unknown("none absent", "Errors/s", "Workers", "Failing", "Given up")...)
	}
	return append(cells, newCell("Errors/s", perSecondText(q.Minute.Errors), "warn"), q.workersCell("Workers"),
		newCell("Failing", q.Workers.Failing, "warn"), newCell("Given up", q.GivenUp, "bad"))
}

func (q queueReport) workersCell(label string) cell {
	w := q.Workers
	c := cell{Label: label, Text: number(w.Busy) + " of " + number(w.Wanted)}
	if w.Stuck > 0 {
		c.Text, c.Class = c.Text+", "+number(w.Stuck)+" stuck", "bad"
	}
	return c
}

// Tiles returns the numbers at the top of the queue's page, with links to the keys behind them.
func (q queueReport) Tiles() (tiles []cell) {
	add := func(c cell, href string) {
		if c.Class == "none" {
			c.Class = ""
		}
		c.Href = href
		tiles = append(tiles, c)
	}
	if q.HasQueue {
		add(newCell("Queued", q.Queued), "#queued")
		if q.Blocked > 0 {
			label := "Blocked by a limit"
			if q.PausedGroups > 0 {
				label += " or a pause"
			}
			add(newCell(label, q.Blocked, "warn"), "#queued")
		}
		add(newCell("In work", q.InWork), "#running")
		if q.Held > 0 {
			add(newCell("On hold", q.Held), "#held")
		}
		add(newCell("Waiting", q.Waiting), "#waiting")
	}
	if q.Timed {
		oldest := timeCell("Oldest queued", q.OldestQueued)
		if q.Unworked {
			oldest.Class = ""
		}
		add(oldest, "#queued")
		add(timeCell("Longest in work", q.LongestRunning), "#running")
		add(cell{Label: "Unfinished work", Text: human(time.Duration(q.UnfinishedWork))}, "#running")
	}
	if len(q.Pools) > 0 {
		add(q.workersCell("Workers busy"), "#pools")
		add(newCell("Failing", q.Workers.Failing, "warn"), "#failing")
		add(newCell("Given up", q.GivenUp, "bad"), "#given-up")
	}
	if q.Dropped > 0 {
		add(newCell("Dropped at shutdown", q.Dropped), "")
	}
	if q.UnmatchedDones > 0 {
		add(newCell("Done without Get", q.UnmatchedDones, "warn"), "")
	}
	return tiles
}

// Cells returns the numbers of the pool's row.
func (p poolReport) Cells() []cell {
	busy := cell{Label: "Busy", Text: number(p.Busy) + " of " + number(p.Wanted)}
	if p.Living != p.Wanted {
		busy.Text += fmt.Sprintf(" (%s living)", number(p.Living))
	}
	interrupted := newCell("Interrupted", p.Interrupted)
	if p.Looping == 1 {
		interrupted.Note = "1 key loops"
	} else if p.Looping > 1 {
		interrupted.Note = number(p.Looping) + " keys loop"
	}
	return []cell{
		busy,
		newCell("Stuck", p.Stuck, "bad"),
		newCell("Handled", p.Handled),
		newCell("Failed", p.Failed, "warn"),
		newCell("Panicked", p.Panicked, "bad"),
		newCell("Timed out", p.TimedOut, "warn"),
		newCell("Requeued", p.Requeued),
		interrupted,
		newCell("Given up", p.GivenUp, "bad"),
	}
}

// labels returns the headings of the columns of cells.
func labels(cells []cell) []string { return mapped(cells, func(c cell) string { return c.Label }) }
