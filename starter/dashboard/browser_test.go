package dashboard

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium. The test speaks its DevTools protocol through a pipe.
type browser struct {
	t       *testing.T
	out     *os.File
	session string
	id      int

	mutex   sync.Mutex
	answers map[int]chan json.RawMessage
	events  chan event
	errors  []string // violations of the policy, and errors of scripts
}

type event struct {
	Method string
	Params json.RawMessage
}

// findChromium returns the path of Chromium, or skips the test.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium on this machine: apt-get install chromium")
	return ""
}

// newBrowser starts a browser with one page.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := findChromium(t)
	theirIn, out, err := os.Pipe()
	require.NoError(t, err)
	in, theirOut, err := os.Pipe()
	require.NoError(t, err)
	// the sandbox does not work for root in a container
	c := exec.CommandContext(t.Context(), path, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--force-color-profile=srgb", "--no-first-run", "--disable-background-networking",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	c.ExtraFiles = []*os.File{theirIn, theirOut}
	require.NoError(t, c.Start())
	_, _ = theirIn.Close(), theirOut.Close()
	b := &browser{t: t, out: out, answers: map[int]chan json.RawMessage{}, events: make(chan event, 1000)}
	go b.receive(in)
	t.Cleanup(func() {
		_ = out.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// receive reads the answers and events of the browser until it ends.
func (b *browser) receive(in *os.File) {
	reader := bufio.NewReader(in)
	for {
		text, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  json.RawMessage
		}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		if m.ID == 0 {
			b.note(m.Method, m.Params)
			select {
			case b.events <- event{m.Method, m.Params}:
			default:
			}
			continue
		}
		b.mutex.Lock()
		answer := b.answers[m.ID]
		delete(b.answers, m.ID)
		b.mutex.Unlock()
		if m.Error != nil {
			m.Result = nil
		}
		answer <- m.Result
	}
}

// note keeps errors of the page.
func (b *browser) note(method string, params json.RawMessage) {
	isError := method == "Runtime.exceptionThrown" ||
		method == "Log.entryAdded" && strings.Contains(string(params), `"level":"error"`)
	if isError {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.errors = append(b.errors, string(params))
	}
}

// call sends a command and waits for its answer.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.id++
	answer := make(chan json.RawMessage, 1)
	b.mutex.Lock()
	b.answers[b.id] = answer
	b.mutex.Unlock()
	m := map[string]any{"id": b.id, "method": method, "params": params}
	if params == nil {
		m["params"] = map[string]any{}
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	require.NoError(b.t, err)
	_, err = b.out.Write(append(text, 0))
	require.NoError(b.t, err)
	select {
	case got := <-answer:
		require.NotNil(b.t, got, "the browser refuses %s", method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(got, result))
		}
	case <-time.After(2 * time.Minute):
		require.FailNow(b.t, "the browser does not answer", method)
	}
}

// open loads a page, and waits until it is complete.
func (b *browser) open(address string, width, height int, isDark bool) {
	b.t.Helper()
	b.setWidth(width, height)
	scheme := "light"
	if isDark {
		scheme = "dark"
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
	b.call("Page.navigate", map[string]any{"url": address}, nil)
	b.await("Page.loadEventFired")
}

// setWidth sets the size of the screen.
func (b *browser) setWidth(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500,
	}, nil)
}

// await waits for an event.
func (b *browser) await(method string) {
	b.t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		select {
		case e := <-b.events:
			if e.Method == method {
				return
			}
		case <-timeout:
			require.FailNow(b.t, "the browser does not load the page", method)
		}
	}
}

// value evaluates an expression in the page.
func (b *browser) value(expression string) any {
	b.t.Helper()
	var answer struct{ Result struct{ Value any } }
	b.call(
		"Runtime.evaluate",
		map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true},
		&answer,
	)
	return answer.Result.Value
}

// picture returns the page as PNG, down to its end or to the height.
func (b *browser) picture(width, height int) []byte {
	b.t.Helper()
	if end, is := b.value("Math.ceil(document.documentElement.getBoundingClientRect().height)").(float64); is {
		height = min(height, int(end))
	}
	var answer struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{
		"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
	}, &answer)
	data, err := base64.StdEncoding.DecodeString(answer.Data)
	require.NoError(b.t, err)
	return data
}
