package debug

import (
	"net/url"
	"strconv"
)

const (
	// refreshSeconds is how often a page that is looked at asks for itself, unless it goes over more than
	// fewKeys each time.
	refreshSeconds = 5
	fewKeys        = 10_000

	// someKeys is how many keys of each state are shown unless more are asked for, maxKeys the most.
	someKeys = 25
	maxKeys  = 250
)

// page is what every page has around the report that it shows.
type page struct {
	// report is what the handler answers as JSON.
	report any
	// Refresh is after how many seconds the page reloads, or 0, and HrefJSON its address as JSON.
	Refresh  int
	HrefJSON string
}

// newPage returns a page that reloads if refreshes, and whose query has these names and values in turn.
func newPage(report any, refreshes bool, query ...any) page {
	p := page{report: report, HrefJSON: href(append(query, "format", "json")...)}
	if refreshes {
		p.Refresh = refreshSeconds
	}
	return p
}

// jsonReport returns the report of a page.
func (p page) jsonReport() any { return p.report }

// gonePage says why there is nothing to show.
type gonePage struct {
	page
	errorReport
	Title string
}

func newGonePage(title, text string) *gonePage {
	p := &gonePage{page: page{Refresh: refreshSeconds}, errorReport: errorReport{text}, Title: title}
	p.report = p.errorReport
	return p
}

// pager says which of its pages a list shows, and links to those beside it, if there are any.
type pager struct {
	Page, Pages    int
	Previous, Next string
}

// newPager returns the pager of n items for the page that query asks for.
func newPager(query url.Values, n, perPage int, href func(page int) string) pager {
	p := pager{Pages: max(1, (n+perPage-1)/perPage)}
	p.Page, _ = strconv.Atoi(query.Get("page"))
	if p.Page = min(max(p.Page, 1), p.Pages); p.Page > 1 {
		p.Previous = href(p.Page - 1)
	}
	if p.Page < p.Pages {
		p.Next = href(p.Page + 1)
	}
	return p
}

// keyRow is a key on a page.
type keyRow struct {
	keyReport
	QueueID string
	// Actions are what can be done with it. GroupToPause is the whole name of its group, which an action needs,
	// unless that is too long for a button.
	Actions      actionSet
	GroupToPause string
	// Linked reports that the page is not the key's own.
	Linked bool
}

// rowsOf returns keys for a list.
func rowsOf(queueID string, keys []keyReport, can actionSet) []keyRow {
	return mapped(keys, func(k keyReport) keyRow {
		row := keyRow{keyReport: k, QueueID: queueID, Actions: can, Linked: true}
		if k.Queue != nil {
			row.QueueID = k.Queue.ID
		}
		return row
	})
}

// IsCut reports that the page shows a part of the key.
func (k keyRow) IsCut() bool { return k.Bytes > maxKey }

// IsInQueue reports whether the queue has the key.
func (k keyRow) IsInQueue() bool {
	return k.State == stateQueued || k.State == stateWaiting || k.State == stateProcessing
}

// IsGivenUp reports that the record of its failures is all that is left of the key.
func (k keyRow) IsGivenUp() bool { return k.State == stateGivenUp }

// LongError returns the beginning of an error that would fill many lines of a list, and otherwise "".
func (k keyRow) LongError() string {
	if len(k.Error) <= longError {
		return ""
	}
	return short(k.Error, longError)
}

// mapped returns what to returns for each of all.
func mapped[From, To any](all []From, to func(From) To) []To {
	results := make([]To, len(all))
	for i, v := range all {
		results[i] = to(v)
	}
	return results
}
