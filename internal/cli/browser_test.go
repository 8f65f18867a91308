package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// tab is the page of a daemon in a real browser.
type tab struct {
	f   *fleet
	ctx context.Context

	mu       sync.Mutex
	messages []string // of the browser's console
}

// browser is the browser of all tests: a start of one costs more processor time than most tests. Each tab has a profile of its own.
var browser struct {
	sync.Mutex
	ctx context.Context // nil before the first tab
	end func()
}

// startBrowser returns the context of the browser.
func startBrowser() (context.Context, error) {
	browser.Lock()
	defer browser.Unlock()
	if browser.ctx != nil {
		return browser.ctx, nil
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("disable-lcd-text", true), chromedp.DisableGPU)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // root may not have one
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(ctx)
	browser.end = func() {
		chromedp.Cancel(ctx) // waits for the browser's end
		leave()
		stop()
	}
	if err := chromedp.Do(ctx, chromedp.Steps()); err != nil {
		browser.end()
		return nil, err
	}
	browser.ctx = ctx
	return ctx, nil
}

// endBrowser ends the browser if a test has started it.
func endBrowser() {
	if browser.ctx != nil {
		browser.end()
	}
}

// open opens a page. It is closed with the test.
func (f *fleet) open(addr string) *tab {
	f.t.Helper()
	ctx, err := startBrowser()
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	ctx, leave := chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	t := &tab{f: f, ctx: ctx}
	var listening sync.WaitGroup
	f.t.Cleanup(func() {
		if f.t.Failed() {
			text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
			f.t.Logf("the page shows:\n%s\nand its console:\n%s", text, strings.Join(t.console(), "\n"))
		}
		chromedp.Cancel(ctx) // waits until the tab is closed
		leave()
		cancel()
		listening.Wait()
	})
	t.do(chromedp.Steps()) // opens the tab
	console := chromedp.Console(ctx)
	listening.Go(func() {
		for m, err := range console {
			if err != nil {
				return
			}
			t.mu.Lock()
			t.messages = append(t.messages, m.String())
			t.mu.Unlock()
		}
	})
	t.do(chromedp.EmulateViewport(1200, 800), chromedp.Navigate("http://"+addr))
	return t
}

// do performs actions, with a timeout.
func (t *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	t.f.t.Helper()
	if err := within(t.ctx, func(ctx context.Context) error { return chromedp.Do(ctx, steps...) }); err != nil {
		t.f.t.Fatal(err)
	}
}

// within calls do with a timeout. The first action opens the tab, which lives as long as its context, and so has no timeout.
func within(ctx context.Context, do func(context.Context) error) error {
	if c := chromedp.FromContext(ctx); c == nil || c.Target == nil {
		return do(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	return do(limited)
}

// evaluate evaluates JavaScript in the page.
func evaluate[T any](t *tab, js string) T {
	t.f.t.Helper()
	var v T
	if err := within(t.ctx, func(ctx context.Context) (err error) {
		v, err = chromedp.Run(ctx, chromedp.Evaluate[T](js))
		return err
	}); err != nil {
		t.f.t.Fatalf("%s: %v", js, err)
	}
	return v
}

// until waits until an expression is true in the page.
func (t *tab) until(what, js string) {
	t.f.t.Helper()
	t.f.eventually(what, func() bool { return evaluate[bool](t, js) })
}

// advanceClock advances the page's clock by more than the age at which it calls the last response old.
func (t *tab) advanceClock() {
	t.f.t.Helper()
	evaluate[int](t, "performance.now = (f => () => f() + 20000)(performance.now.bind(performance)); 1")
}

// shows waits until an element contains a text.
func (t *tab) shows(selector, text string) {
	t.f.t.Helper()
	t.until(fmt.Sprintf("%s shows %q", selector, text), fmt.Sprintf("(document.querySelector(%q)?.innerText || '').includes(%q)", selector, text))
}

// click clicks as a user does: elements that are hidden or covered cannot be clicked. An update of the page may replace the element
// before the click, or move it away from under the mouse: then it is looked for again.
func (t *tab) click(selector string) {
	t.f.t.Helper()
	t.f.eventually("a click on "+selector, func() bool {
		err := within(t.ctx, func(ctx context.Context) error {
			_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf(awaitClick, selector)))
			if err != nil {
				return err
			}
			return chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector)))
		})
		if err != nil && !isGone(err) {
			t.f.t.Fatal(err)
		}
		return err == nil && t.clicked()
	})
}

// focus gives an element the focus. An update of the page may replace an element that was found before.
func (t *tab) focus(selector string) {
	t.f.t.Helper()
	evaluate[bool](t, fmt.Sprintf("(document.querySelector(%q).focus(), true)", selector))
}

// enter types a text into an input, as a user does. An update of the page may replace the input meanwhile: then it is looked for again.
func (t *tab) enter(selector, text string) {
	t.f.t.Helper()
	t.f.eventually("text in "+selector, func() bool {
		err := within(t.ctx, func(ctx context.Context) error {
			_, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf("document.querySelector(%q).value = ''", selector)))
			if err != nil {
				return err
			}
			return chromedp.Do(ctx, chromedp.SendKeys(chromedp.CSS(selector), text))
		})
		if err != nil && !isGone(err) {
			t.f.t.Fatal(err)
		}
		return err == nil
	})
}

// awaitClick notes whether the next click meets an element. It outlives the page that a click leaves.
const awaitClick = `sessionStorage.removeItem('clicked'),
	document.addEventListener('click', (e) => { if (e.target.closest(%q)) sessionStorage.setItem('clicked', 'yes'); }, { capture: true, once: true }),
	true`

// clicked reports whether the last click has met its element.
func (t *tab) clicked() (yes bool) {
	t.f.t.Helper()
	t.f.eventually("an answer of the page", func() bool {
		err := within(t.ctx, func(ctx context.Context) (err error) {
			yes, err = chromedp.Run(ctx, chromedp.Evaluate[bool]("sessionStorage.getItem('clicked') === 'yes'"))
			return err
		})
		if err != nil && !isGone(err) {
			t.f.t.Fatal(err)
		}
		return err == nil
	})
	return yes
}

// isGone tells the error of a node or a page that has gone.
func isGone(err error) bool { return strings.Contains(err.Error(), "(-32000)") }

func (t *tab) console() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.messages...)
}

// checkConsole checks that the page's Content-Security-Policy refused nothing, and that there were no errors.
func (t *tab) checkConsole() {
	t.f.t.Helper()
	if messages := t.console(); len(messages) > 0 {
		t.f.t.Errorf("the console has:\n%s", strings.Join(messages, "\n"))
	}
}

// emulate sets a preference of the browser's user.
func (t *tab) emulate(name, value string) {
	t.f.t.Helper()
	params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}}
	if err := within(t.ctx, func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, params)
		return err
	}); err != nil {
		t.f.t.Fatal(err)
	}
}

// accessibilityTree returns what a screen reader finds: the role and name of each node.
func (t *tab) accessibilityTree() []string {
	t.f.t.Helper()
	var all []string
	if err := within(t.ctx, func(ctx context.Context) error {
		tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		for _, n := range tree.Nodes {
			if !n.Ignored && n.Role != nil {
				all = append(all, text(n.Role)+" "+text(n.Name))
			}
		}
		return err
	}); err != nil {
		t.f.t.Fatal(err)
	}
	return all
}

func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	json.Unmarshal(v.Value, &s) // a name is a string
	return s
}
