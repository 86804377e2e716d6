package target

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"millwright/decide/phrase"
	"millwright/observe/cache"
)

const (
	// firstRetryDelay and maxRetryDelay are the first and the longest delay between two attempts to connect. The delay
	// doubles. Source: frequent requests to a dead API server delay its recovery, and five minutes are short compared
	// with an outage that a person must repair.
	firstRetryDelay = 10 * time.Second
	maxRetryDelay   = 5 * time.Minute
	// fillTimeout is how long the cache of nodes may take until it is filled. Source: far longer than the list of 5,000
	// nodes.
	fillTimeout = time.Minute
	// shortestAbsence is the shortest outage that extends the timeouts of machines. Source: a shorter outage does not
	// matter for the timeouts of machines.
	shortestAbsence = 5 * time.Second
	// maxWhy is the maximum length of a failure in a status, in bytes.
	maxWhy = 200
)

// source contains the settings of a namespace's target, from the namespace's Secrets.
type source struct {
	kubeconfig Kubeconfig
	none       bool   // machines join no cluster
	missing    string // why no kubeconfig can be used; empty: kubeconfig is set
}

// isSame reports whether two sources can use the same connection.
func (s source) isSame(other source) bool {
	return s.none == other.none && s.missing == other.missing && s.kubeconfig.Content == other.kubeconfig.Content
}

// connection is the target of one namespace. The connection's goroutine connects to the API server, watches the nodes,
// and connects again after an outage.
type connection struct {
	registry  *Registry
	namespace string
	source    atomic.Pointer[source]
	changed   chan struct{} // gets an element when source has changed
	target    atomic.Pointer[cache.Target]
	end       context.CancelFunc // ends the goroutine
}

// setSource stores the source from the present Secrets.
func (c *connection) setSource(s source) {
	if before := c.source.Swap(&s); before != nil && before.isSame(s) && before.kubeconfig.Token == s.kubeconfig.Token {
		return
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run keeps the target of the namespace connected until ctx ends.
func (c *connection) run(ctx context.Context) {
	for ctx.Err() == nil {
		switch s := *c.source.Load(); {
		case s.none:
			c.setTarget(nil)
		case s.missing != "":
			c.setTarget(missingTarget(s.missing))
		default:
			c.connect(ctx, s)
			continue
		}
		select {
		case <-ctx.Done():
		case <-c.changed:
		}
	}
}

// missingTarget returns a target that refuses every request.
func missingTarget(why string) *cache.Target {
	// The client of a link that stays down sends no request, so no address is needed.
	config := &rest.Config{Host: "https://missing.invalid", WrapTransport: newLink().transport}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		panic(err) // cannot happen: the configuration is constant
	}
	target := cache.NewTarget(client, "")
	target.SetStatus(cache.TargetStatus{State: cache.TargetMissing, Why: why, Since: time.Now()})
	return target
}

func (c *connection) setTarget(target *cache.Target) {
	c.target.Store(target)
	c.registry.report(c.namespace, target)
}

// session is one connection to the API server of a target.
type session struct {
	*connection
	ctx     context.Context // ends when the connection ends
	source  source
	link    *link
	current *cache.Target

	isStarted, isFilled bool // whether the caches run, and whether they were filled once
}

// connect serves one connection until the source needs another connection, until the API server was restored to a
// former state, or until ctx ends.
func (c *connection) connect(ctx context.Context, s source) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	restores, l := cache.NewRestoreDetector(), newLink()
	config := restores.ConfigWithRestoreCheck(s.kubeconfig.Config)
	config.Wrap(l.transport)
	target, err := c.newTarget(config, s.kubeconfig.Cluster)
	if err != nil {
		// The error is not shown: it may quote a part of the kubeconfig.
		c.setTarget(missingTarget("the kubeconfig has certificates or keys that cannot be used"))
		select {
		case <-ctx.Done():
		case <-c.changed:
		}
		return
	}
	c.setTarget(target)
	restored := make(chan struct{})
	go func() {
		defer close(restored)
		// the error describes the restore, and is not needed: a new connection reads all objects again
		_ = restores.AwaitRestore(ctx)
	}()
	now := session{connection: c, ctx: ctx, source: s, link: l, current: target}
	since := time.Now()
	for now.reconnect(ctx) {
		if end := time.Now(); end.Sub(since) >= shortestAbsence {
			target.AddAbsence(cache.WorkerAbsence{From: since, To: end})
		}
		now.setStatus(cache.TargetReady, "", time.Now())
		if !now.awaitOutage(ctx, restored) {
			return
		}
		var why string
		since, why = l.outage()
		now.setStatus(cache.TargetUnavailable, why, since)
	}
}

// newTarget returns a target that is not connected yet.
func (c *connection) newTarget(config *rest.Config, identity string) (*cache.Target, error) {
	client, err := c.registry.options.Connect(config)
	if err != nil {
		return nil, err
	}
	target := cache.NewTarget(client, identity)
	if err := target.WatchNodes(); err != nil {
		return nil, err
	}
	err = target.Informer(cache.Nodes).SetWatchErrorHandlerWithContext(handleWatchError)
	if err != nil {
		return nil, err
	}
	if c.registry.options.Drains {
		target.WatchDrainsOnDemand()
	}
	target.SetStatus(cache.TargetStatus{
		State: cache.TargetConnecting, Why: "the first attempt to connect has not ended", Since: time.Now(),
	})
	return target, nil
}

// handleWatchError logs why a watch ended. The requests that a link refuses are not logged: the status of the target has
// the reason.
func handleWatchError(ctx context.Context, r *toolscache.Reflector, err error) {
	if !errors.Is(err, errDown) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

func (s *session) setStatus(state cache.TargetState, why string, since time.Time) {
	s.current.SetStatus(cache.TargetStatus{State: state, Why: phrase.CutText(why, maxWhy), Since: since})
	s.registry.reportStatus(s.namespace, s.current)
}

// awaitOutage returns true when the target goes down. awaitOutage returns false if the connection must end. A new token
// is used for the next request.
func (s *session) awaitOutage(ctx context.Context, restored <-chan struct{}) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-restored:
			return false
		case <-s.link.down:
			return true
		case <-s.changed:
			if !s.takeToken() {
				return false
			}
		}
	}
}

// takeToken uses the present token of the source for the next request. takeToken returns false if the source needs
// another connection.
func (s *session) takeToken() bool {
	now := s.connection.source.Load()
	if !now.isSame(s.source) {
		return false
	}
	s.link.token.Store(&now.kubeconfig.Token)
	return true
}

// reconnect tries to connect until the API server answers and the cache of nodes is filled. reconnect returns false if
// the source needs another connection, or ctx ends. A change of the Secret ends a delay, because new credentials may
// work.
func (s *session) reconnect(ctx context.Context) bool {
	for delay := firstRetryDelay; ctx.Err() == nil && s.takeToken(); {
		err := s.tryOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		before := s.current.Status()
		s.setStatus(before.State, err.Error(), before.Since)
		select {
		case <-ctx.Done():
		case <-s.changed:
		case <-time.After(delay + rand.N(delay/5)):
			delay = min(2*delay, maxRetryDelay)
		}
	}
	return false
}

// tryOnce sends one request. If the API server answers, tryOnce lets all requests pass. The first time, tryOnce also
// waits until the cache of nodes is filled.
func (s *session) tryOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	_, err := s.current.Client().CoreV1().Nodes().
		List(context.WithValue(ctx, probeKey{}, true), metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s.link.open()
	if !s.isStarted {
		s.isStarted = true
		s.current.Start(s.ctx)
	}
	if !s.isFilled {
		if err := s.current.AwaitFilledCaches(ctx); err != nil {
			return err //nolint:wrapcheck // the error names the cache
		}
		s.isFilled = true
	}
	return nil
}
