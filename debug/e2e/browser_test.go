// Package e2e looks at the page of package debug with a real browser. Run install-chromium.sh first.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser is a headless browser with one page, and what that page has complained about.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := findBrowser()
	if path == "" {
		if os.Getenv("WORKQUEUE_E2E") != "" {
			t.Fatal("there is no browser, and WORKQUEUE_E2E is set: run install-chromium.sh")
		}
		t.Skip("there is no browser: run install-chromium.sh")
	}
	// It makes itself an empty profile, and removes it.
	allocator, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path),
		chromedp.Headless,
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.NoFirstRun,
		chromedp.WSURLReadTimeout(time.Minute), // A busy machine starts it slowly.
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true),
	)
	t.Cleanup(stop)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: ctx}
	console := chromedp.Console(ctx)
	go func() {
		for message, err := range console {
			if err != nil {
				return // The test is over.
			}
			b.mu.Lock()
			b.complaints = append(b.complaints, message.String())
			b.mu.Unlock()
		}
	}()
	return b
}

func findBrowser() string {
	for _, name := range []string{"chromium", "google-chrome", "chromium-browser"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// wantNoComplaints asserts that nothing was written to the console, by the page or about it.
func (b *browser) wantNoComplaints() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		b.t.Errorf("the browser complains:\n%s", strings.Join(b.complaints, "\n"))
	}
}

// within runs f, and ends the test if it fails or takes longer than a minute.
func within[R any](b *browser, f func(context.Context) (R, error)) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	result, err := f(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// run makes the browser do something, and returns what came of it.
func run[R any](b *browser, action chromedp.Action[R]) R {
	b.t.Helper()
	return within(b, func(ctx context.Context) (R, error) { return chromedp.Run(ctx, action) })
}

// eval returns what a JavaScript expression comes to.
func eval[R any](b *browser, expression string) R {
	b.t.Helper()
	return run(b, chromedp.Evaluate[R](expression))
}

// wait waits until a JavaScript expression is true. (chromedp.Poll names the execution context that it has
// heard of last, which right after a navigation may be the one before.) During a navigation there may be no
// page to ask.
func (b *browser) wait(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if is {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("after a minute, this is not true: %s (%v)", expression, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// click clicks what a page has, or will have after its next refresh.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("document.querySelector(%q) !== null", selector))
	eval[bool](b, fmt.Sprintf("document.querySelector(%q).click(), true", selector))
}

func (b *browser) open(url string) {
	b.t.Helper()
	run(b, chromedp.Navigate(url))
}

// follow clicks a link or a form's button, and waits for the page to which that leads. The click comes from a
// timer, so that this page is still there to answer.
func (b *browser) follow(selector string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("document.querySelector(%q) !== null", selector))
	const later = "window.isOld = true, setTimeout(() => document.querySelector(%q).click()), true"
	eval[bool](b, fmt.Sprintf(later, selector))
	b.wait(`window.isOld === undefined && document.readyState === "complete"`)
}

// look is a kind of screen and of reader.
type look struct {
	name          string
	width, height int64
	dark          bool
}

func (b *browser) be(l look) {
	b.t.Helper()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	within(b, func(ctx context.Context) (cdp.Empty, error) {
		return chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: l.width, Height: l.height, DeviceScaleFactor: 1, Mobile: l.width < 500,
		})
	})
	within(b, func(ctx context.Context) (cdp.Empty, error) {
		return chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
	})
}

// picture writes the whole page to a file, with the 256 colours that it has most of, so that it is small.
func (b *browser) picture(file string) {
	b.t.Helper()
	full, err := png.Decode(bytes.NewReader(run(b, chromedp.FullScreenshot(100))))
	if err != nil {
		b.t.Fatal(err)
	}
	uses := make(map[color.RGBA]int)
	box := full.Bounds()
	box.Max.Y = min(box.Max.Y, 1900) // A page with long lists would be most of a document.
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			uses[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	var colours color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(uses),
		func(a, b color.RGBA) int { return uses[b] - uses[a] }) {
		if colours = append(colours, c); len(colours) == 256 {
			break
		}
	}
	few := image.NewPaletted(box, colours)
	draw.Draw(few, box, full, box.Min, draw.Src)
	var small bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, few); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, small.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}
