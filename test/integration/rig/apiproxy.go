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
// fault. A request with a lost answer reaches the API server; a request with another fault does not.
// The zero value has no faults.
type APIFaults struct {
	UnavailableChance float64       // chance of 503, also for watches
	BusyChance        float64       // chance of 429 with Retry-After: 1
	ConflictChance    float64       // probability of 409 for a PUT, PATCH or DELETE
	LostAnswerChance  float64       // probability that a write succeeds and the connection breaks before the answer
	WatchDelay        time.Duration // delay of each event in open and new watches; the order of the events stays
	// WatchDelay delays only watches of this resource, for example nodes; if DelayedResource is empty, WatchDelay
	// delays all watches.
	DelayedResource string
}

// APIProxy is a proxy between the API server and the processes that use one identity. All methods of APIProxy are safe
// for concurrent use.
type APIProxy struct {
	server         *httptest.Server
	kubeconfigPath string // path of the kubeconfig for the API server; the first request reads the file
	reverseProxy   func() (*httputil.ReverseProxy, error)

	mu                  sync.Mutex
	faults              APIFaults
	random              *rand.Rand
	watches             map[int]context.CancelFunc // functions that break the open watches, by the number of the watch
	openedWatchCount    int                        // number of watches opened so far
	watchesRefusedUntil time.Time                  // time until which the proxy refuses new watches
	cutWatchCount       int                        // number of watches that the last CutWatches broke
	faultCounts         map[string]int             // number of faults, by name
}

// newAPIProxy starts a proxy. The kubeconfig need not exist before the first request arrives.
func newAPIProxy(identity string) *APIProxy {
	p := &APIProxy{
		kubeconfigPath: identity,
		random:         rand.New(rand.NewPCG(1, 7)),
		watches:        map[int]context.CancelFunc{},
		faultCounts:    map[string]int{},
	}
	p.reverseProxy = sync.OnceValues(p.newReverseProxy)
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true // the API server also supports HTTP/2
	p.server.StartTLS()
	return p
}

// newReverseProxy reads the identity's kubeconfig, and returns a proxy to the API server that the kubeconfig names.
func (p *APIProxy) newReverseProxy() (*httputil.ReverseProxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfigPath)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config) // the transport adds the identity's token
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
			if isWatchRequest(response.Request) && response.StatusCode == http.StatusOK {
				resource := path.Base(response.Request.URL.Path)
				response.Body = delayedReader(
					response.Request.Context(),
					response.Body,
					func() time.Duration { return p.currentWatchDelay(resource) },
				)
			}
			return nil
		},
		// if the API server does not answer, the proxy breaks the connection
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

// SetFaults replaces all faults. Only requests that start later get the new faults. A new WatchDelay is also effective
// in open watches.
func (p *APIProxy) SetFaults(f APIFaults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// CutWatches breaks all open watches, and refuses new watches for this duration.
func (p *APIProxy) CutWatches(refuse time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchesRefusedUntil, p.cutWatchCount = time.Now().Add(refuse), len(p.watches)
	for _, end := range p.watches {
		p.faultCounts["cut"]++
		end()
	}
}

// countWatches returns the number of open watches, and the number of watches that the last CutWatches broke.
func (p *APIProxy) countWatches() (open, broken int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watches), p.cutWatchCount
}

// FaultCounts returns the number of faults since the start, by name: unavailable, busy, conflict, lost, cut.
func (p *APIProxy) FaultCounts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faultCounts)
}

// currentWatchDelay returns the current delay of events in watches of a resource.
func (p *APIProxy) currentWatchDelay(resource string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if only := p.faults.DelayedResource; only != "" && only != resource {
		return 0
	}
	return p.faults.WatchDelay
}

// chooseFault chooses the fault of a request at random, and counts the fault. chooseFault returns "" for no fault.
func (p *APIProxy) chooseFault(r *http.Request) (name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	watch, f := isWatchRequest(r), p.faults
	changes := r.Method == http.MethodPut || r.Method == http.MethodPatch || r.Method == http.MethodDelete
	n := p.random.Float64()
	under := func(chance float64, applies bool) bool {
		if !applies {
			return false
		}
		n -= chance
		return n < 0
	}
	switch {
	case watch && time.Now().Before(p.watchesRefusedUntil), under(f.UnavailableChance, true):
		name = "unavailable"
	case under(f.BusyChance, !watch):
		name = "busy"
	case under(f.ConflictChance, changes):
		name = "conflict"
	case under(f.LostAnswerChance, changes || r.Method == http.MethodPost):
		name = "lost"
	default:
		return ""
	}
	p.faultCounts[name]++
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
		w = &discardingResponseWriter{header: http.Header{}}
		defer panic(http.ErrAbortHandler) // this panic makes the server break the connection or the stream
	}
	proxy, err := p.reverseProxy()
	if err != nil {
		writeAPIError(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	if isWatchRequest(r) {
		ctx, end := context.WithCancel(r.Context())
		defer p.recordWatch(end)()
		r = r.WithContext(ctx)
	}
	proxy.ServeHTTP(w, r)
}

// recordWatch records an open watch until done is called. CutWatches calls end to break the watch.
func (p *APIProxy) recordWatch(end context.CancelFunc) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.openedWatchCount++
	id := p.openedWatchCount
	p.watches[id] = end
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, id)
		end()
	}
}

func isWatchRequest(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// writeAPIError writes an error in the format of the API server.
func writeAPIError(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

// discardingResponseWriter is a ResponseWriter that discards the answer.
type discardingResponseWriter struct{ header http.Header }

func (d *discardingResponseWriter) Header() http.Header         { return d.header }
func (d *discardingResponseWriter) Write(b []byte) (int, error) { return len(b), nil }
func (d *discardingResponseWriter) WriteHeader(int)             {}

// delayedReader returns a reader that delivers the pieces of body in order. Each piece waits for the value that delay
// returned when the piece arrived. The delayed reader fails when ctx ends.
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

// SetFaults replaces the faults of both proxies.
func (p *Proxies) SetFaults(f APIFaults) {
	p.Worker.SetFaults(f)
	p.Bridge.SetFaults(f)
}

// SetFaultsForTest sets the faults of both proxies until the test ends.
func (p *Proxies) SetFaultsForTest(t *testing.T, f APIFaults) {
	t.Helper()
	p.SetFaults(f)
	t.Cleanup(func() { p.SetFaults(APIFaults{}) })
}

// CutWatches breaks all open watches of both proxies, and refuses new watches for this duration.
func (p *Proxies) CutWatches(refuse time.Duration) {
	p.Worker.CutWatches(refuse)
	p.Bridge.CutWatches(refuse)
}

// AwaitWatches waits until as many watches are open as the last CutWatches broke. Without AwaitWatches, Millwright may
// see a change of the test late. After each failed watch a client waits longer, up to 60 s (client-go's reflector: 30 s
// and up to 30 s jitter). The back-off of a client is reset if its watches did not fail for 2 min.
func (p *Proxies) AwaitWatches(t *testing.T) {
	t.Helper()
	for name, proxy := range map[string]*APIProxy{"worker": p.Worker, "bridge": p.Bridge} {
		Eventually(t, "the watches of the "+name+" are open again", func() (bool, any) {
			open, broken := proxy.countWatches()
			return open >= broken, fmt.Sprintf("%d of %d", open, broken)
		})
	}
}

// StartRigBehindProxies starts a stack as StartRig does. The stack's workers and bridges reach the API server through
// the rig's proxies.
func StartRigBehindProxies(ctx context.Context, dir string, options stack.Options) (*Rig, error) {
	layout := component.StackFolder(dir)
	folder := layout.Path("proxies")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make folder of proxies: %w", err)
	}
	proxies := &Proxies{
		Worker: newAPIProxy(layout.KubeconfigFile(component.WorkerIdentity)),
		Bridge: newAPIProxy(layout.KubeconfigFile(component.BridgeIdentity)),
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
	r, err := StartRig(ctx, dir, options)
	if err != nil {
		return nil, err
	}
	r.Proxies = proxies
	return r, nil
}

// kubeconfig returns the kubeconfig of the processes behind the proxy. The returned kubeconfig has no credentials,
// because the proxy adds the credentials.
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
