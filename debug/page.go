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
	// keysPerSection is how many keys of a state the page of a queue shows, and keysPerPage a page of all.
	keysPerSection = 25
	keysPerPage    = 250
)

// page is what every page has.
type page struct {
	json any
	// Refresh is after how many seconds the page reloads, or 0, and HrefJSON its address as JSON.
	Refresh  int
	HrefJSON string
	// Error says why there is nothing to show, or not all. Title is for a page with nothing else.
	Title, Error string
}

// newPage returns a page. walked is how many keys it has gone over, and query has the names and values of its
// address in turn.
func newPage(walked int, json any, query ...any) page {
	p := page{json: json, HrefJSON: href(append(query, "format", "json")...)}
	if walked <= fewKeys {
		p.Refresh = refreshSeconds
	}
	return p
}

// asJSON returns what the page is as JSON.
func (p page) asJSON() any { return p.json }

// newGonePage returns a page that says why there is nothing to show.
func newGonePage(title, text string) page {
	return page{json: object{"error": text}, Refresh: refreshSeconds, Title: title, Error: text}
}

// pager says which of its pages a list shows, and links to those beside it, if there are any.
type pager struct {
	Page, Pages    int
	Previous, Next string
}

// newPager returns the pager of n items for the page that query asks for.
func newPager(query url.Values, n, perPage int, href func(page int) string) pager {
	p := pager{Pages: max(1, (n+perPage-1)/perPage)}
	if p.Page = min(pageNumber(query), p.Pages); p.Page > 1 {
		p.Previous = href(p.Page - 1)
	}
	if p.Page < p.Pages {
		p.Next = href(p.Page + 1)
	}
	return p
}

// pageNumber returns which page of a list query asks for.
func pageNumber(query url.Values) int {
	page, _ := strconv.Atoi(query.Get("page"))
	return max(page, 1)
}

// mapped returns what to returns for each of all.
func mapped[From, To any](all []From, to func(From) To) []To {
	results := make([]To, len(all))
	for i, v := range all {
		results[i] = to(v)
	}
	return results
}
