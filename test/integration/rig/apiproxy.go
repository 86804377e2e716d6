//go:build integration

package rig

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/devstack/component"
	"millwright/devstack/stack"
)

// APIFaults are the faults of an APIProxy. Chances are from 0 to 1. A request that is not a watch gets at most one
// fault. Of the faults, only Lost lets the request reach the API server. The zero value has no faults.
type APIFaults struct {
	Unavailable float64       // chance of 503, also for watches
	Busy        float64       // chance of 429 with Retry-After: 1
	Conflict    float64       // chance that a PUT, PATCH or DELETE gets 409
	Lost        float64       // chance that a write takes effect, and the connection breaks before the answer
	WatchDelay  time.Duration // delay of each event of open and new watches; the order of events stays
	DelayOnly   string        // resource whose watches have WatchDelay, such as nodes; empty: all resources
}

// APIProxy stands between processes of one identity and the API server. All its methods are safe for concurrent use.
type APIProxy struct {
	server   *httptest.Server
	identity string // path of the kubeconfig for the API server; it is read at the first request
	proxy    func() (*httputil.ReverseProxy, error)

	mu      sync.Mutex
	faults  APIFaults
	dice    *rand.Rand
	watches map[int]context.CancelFunc // open watches, by their number
	opened  int                        // number of watches opened so far
	closed  time.Time                  // time until which new watches are refused
	broken  int                        // number of watches that the last cut broke
	counts  map[string]int             // number of faults, by name
}

// newAPIProxy returns a proxy that listens. The kubeconfig need not exist before the first request.
func newAPIProxy(identity string) *APIProxy {
	p := &APIProxy{
		identity: identity,
		dice:     rand.New(rand.NewPCG(1, 7)),
		watches:  map[int]context.CancelFunc{},
		counts:   map[string]int{},
	}
	p.proxy = sync.OnceValues(p.connect)
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true // the API server has HTTP/2, too
	p.server.StartTLS()
	return p
}

// connect reads the kubeconfig of the identity, and returns a proxy to the API server in it.
func (p *APIProxy) connect() (*httputil.ReverseProxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.identity)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config) // it adds the token of the identity
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(response *http.Response) error {
			if isWatch(response.Request) && response.StatusCode == http.StatusOK {
				resource := path.Base(response.Request.URL.Path)
				response.Body = delayedReader(
					response.Request.Context(),
					response.Body,
					func() time.Duration { return p.delay(resource) },
				)
			}
			return nil
		},
		// the API server does not answer: break the connection
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

// Set replaces all faults, from the next request on. WatchDelay also changes for open watches.
func (p *APIProxy) Set(f APIFaults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// CutWatches breaks all open watches, and refuses new watches for the duration.
func (p *APIProxy) CutWatches(refuse time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.broken = time.Now().Add(refuse), len(p.watches)
	for _, end := range p.watches {
		p.counts["cut"]++
		end()
	}
}

// countWatches returns how many watches are open, and how many the last cut broke.
func (p *APIProxy) countWatches() (open, broken int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watches), p.broken
}

// Counts returns the number of faults so far, by name: unavailable, busy, conflict, lost, cut.
func (p *APIProxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// delay returns the current delay of events in watches of a resource.
func (p *APIProxy) delay(resource string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if only := p.faults.DelayOnly; only != "" && only != resource {
		return 0
	}
	return p.faults.WatchDelay
}

// chooseFault chooses the fault of a request, and counts it; empty: no fault.
func (p *APIProxy) chooseFault(r *http.Request) (name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	watch, f := isWatch(r), p.faults
	changes := r.Method == http.MethodPut || r.Method == http.MethodPatch || r.Method == http.MethodDelete
	n := p.dice.Float64()
	under := func(chance float64, applies bool) bool {
		if !applies {
			return false
		}
		n -= chance
		return n < 0
	}
	switch {
	case watch && time.Now().Before(p.closed), under(f.Unavailable, true):
		name = "unavailable"
	case under(f.Busy, !watch):
		name = "busy"
	case under(f.Conflict, changes):
		name = "conflict"
	case under(f.Lost, changes || r.Method == http.MethodPost):
		name = "lost"
	default:
		return ""
	}
	p.counts[name]++
	return name
}

// ServeHTTP implements http.Handler.
func (p *APIProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch p.chooseFault(r) {
	case "unavailable":
		writeAPIError(
			w,
			http.StatusServiceUnavailable,
			metav1.StatusReasonServiceUnavailable,
			"a fault of the test: unavailable",
		)
		return
	case "busy":
		w.Header().Set("Retry-After", "1")
		writeAPIError(
			w,
			http.StatusTooManyRequests,
			metav1.StatusReasonTooManyRequests,
			"a fault of the test: too many requests",
		)
		return
	case "conflict":
		writeAPIError(
			w,
			http.StatusConflict,
			metav1.StatusReasonConflict,
			"a fault of the test: the object has been modified",
		)
		return
	case "lost":
		w = &discardingWriter{header: http.Header{}}
		defer panic(http.ErrAbortHandler) // the server breaks the connection or the stream
	}
	proxy, err := p.proxy()
	if err != nil {
		writeAPIError(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	if isWatch(r) {
		ctx, end := context.WithCancel(r.Context())
		defer p.recordWatch(end)()
		r = r.WithContext(ctx)
	}
	proxy.ServeHTTP(w, r)
}

// recordWatch records an open watch until done is called. CutWatches breaks the watch: it calls end.
func (p *APIProxy) recordWatch(end context.CancelFunc) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	id := p.opened
	p.watches[id] = end
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, id)
		end()
	}
}

func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// writeAPIError writes an error as the API server does.
func writeAPIError(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// discardingWriter is a ResponseWriter that discards the answer.
type discardingWriter struct{ header http.Header }

func (d *discardingWriter) Header() http.Header         { return d.header }
func (d *discardingWriter) Write(b []byte) (int, error) { return len(b), nil }
func (d *discardingWriter) WriteHeader(int)             {}

// delayedReader returns a reader that delivers the pieces of body in order. A piece is delivered after the delay that
// was set when the piece arrived. The reader fails when ctx ends.
func delayedReader(ctx context.Context, body io.ReadCloser, delay func() time.Duration) io.ReadCloser {
	type piece struct {
		at   time.Time
		data []byte
		err  error
	}
	pieces := make(chan piece, 10_000)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 32<<10)
			n, err := body.Read(buffer)
			select {
			case pieces <- piece{time.Now().Add(delay()), buffer[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	reader, writer := io.Pipe()
	go func() {
		defer func() { _ = body.Close() }()
		for p := range pieces {
			select {
			case <-time.After(time.Until(p.at)):
			case <-ctx.Done():
				writer.CloseWithError(context.Cause(ctx))
				return
			}
			if _, err := writer.Write(p.data); err != nil {
				return
			}
			if p.err != nil {
				writer.CloseWithError(p.err)
				return
			}
		}
		writer.CloseWithError(context.Cause(ctx))
	}()
	return reader
}

// Proxies are the proxies between Millwright's processes and the API server.
type Proxies struct {
	Worker *APIProxy // proxy of all workers
	Bridge *APIProxy // proxy of all bridges
}

// Set replaces the faults of both proxies.
func (p *Proxies) Set(f APIFaults) {
	p.Worker.Set(f)
	p.Bridge.Set(f)
}

// SetFor sets the faults of both proxies until the test ends.
func (p *Proxies) SetFor(t *testing.T, f APIFaults) {
	t.Helper()
	p.Set(f)
	t.Cleanup(func() { p.Set(APIFaults{}) })
}

// CutWatches breaks all open watches of both proxies, and refuses new watches for the duration.
func (p *Proxies) CutWatches(refuse time.Duration) {
	p.Worker.CutWatches(refuse)
	p.Bridge.CutWatches(refuse)
}

// AwaitWatches waits until as many watches are open as the last cut broke. Without it, Millwright may not see a change
// of the test: after each failure of a watch, a client waits longer, up to 60 s (client-go's reflector: 30 s and up to
// 30 s jitter). The client begins with a short wait again if its watches did not fail for 2 min.
func (p *Proxies) AwaitWatches(t *testing.T) {
	t.Helper()
	for name, proxy := range map[string]*APIProxy{"worker": p.Worker, "bridge": p.Bridge} {
		Eventually(t, "the watches of the "+name+" are open again", func() (bool, any) {
			open, broken := proxy.countWatches()
			return open >= broken, fmt.Sprintf("%d of %d", open, broken)
		})
	}
}

// UpBehindProxies starts a stack as Up does. Its workers and bridges reach the API server through the rig's proxies.
func UpBehindProxies(ctx context.Context, dir string, options stack.Options) (*Rig, error) {
	layout := component.Layout(dir)
	folder := layout.Path("proxies")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make folder of proxies: %w", err)
	}
	proxies := &Proxies{
		Worker: newAPIProxy(layout.Kubeconfig(component.WorkerIdentity)),
		Bridge: newAPIProxy(layout.Kubeconfig(component.BridgeIdentity)),
	}
	if options.Args = maps.Clone(options.Args); options.Args == nil {
		options.Args = map[string][]string{}
	}
	for name, p := range map[string]*APIProxy{
		component.Worker: proxies.Worker, component.SecondWorker: proxies.Worker, component.Bridge: proxies.Bridge, component.SecondBridge: proxies.Bridge,
	} {
		file := filepath.Join(folder, name+".kubeconfig")
		if err := clientcmd.WriteToFile(p.kubeconfig(), file); err != nil {
			return nil, fmt.Errorf("write kubeconfig of a proxy: %w", err)
		}
		options.Args[name] = slices.Concat(options.Args[name], []string{"--kubeconfig", file})
	}
	r, err := Up(ctx, dir, options)
	if err != nil {
		return nil, err
	}
	r.Proxies = proxies
	return r, nil
}

// kubeconfig returns the kubeconfig of the processes behind the proxy. It has no credentials, because the proxy adds
// them.
func (p *APIProxy) kubeconfig() clientcmdapi.Config {
	const name = "proxy"
	config := clientcmdapi.NewConfig()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	config.Clusters[name] = &clientcmdapi.Cluster{Server: p.server.URL, CertificateAuthorityData: authority}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return *config
}
