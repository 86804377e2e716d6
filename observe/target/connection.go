package target

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
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
	// cacheFillTimeout is how long the cache of nodes may take until it is filled. Source: far longer than the list of
	// 5,000 nodes.
	cacheFillTimeout = time.Minute
	// connectInterval and connectBurst limit how often a connection is made for a new kubeconfig: connectBurst times, and
	// then once in connectInterval. Source: a person who corrects a kubeconfig needs fewer attempts, and a program that
	// writes the Secret all the time must not make this process list the nodes all the time.
	connectInterval = time.Minute
	connectBurst    = 5
	// nodeComparisonInterval is the interval between two comparisons of the cache of nodes with a list, after an outage.
	nodeComparisonInterval = 200 * time.Millisecond
	// minOutageDuration is the shortest outage that extends the timeouts of machines. Source: a shorter outage does not
	// matter for the timeouts of machines.
	minOutageDuration = 5 * time.Second
	// maxMessageBytes is the maximum length of a failure in a status, in bytes.
	maxMessageBytes = 200
)

// sourceInputs is what a source is read from.
type sourceInputs struct {
	kubeconfigSecret, tokenSecret *corev1.Secret // nil: missing
	isHeld                        bool
}

// source contains the settings of a namespace's target, from the namespace's Secrets.
type source struct {
	kubeconfig    Kubeconfig
	isHeld        bool   // no request is sent
	hasNoCluster  bool   // machines join no cluster
	missingReason string // why no kubeconfig can be used; empty: kubeconfig is set
}

// canShareConnection reports whether two sources can use the same connection.
func (s source) canShareConnection(other source) bool {
	return s.hasNoCluster == other.hasNoCluster && s.isHeld == other.isHeld && s.missingReason == other.missingReason &&
		s.kubeconfig.ContentHash == other.kubeconfig.ContentHash
}

// connection is the target of one namespace. The connection's goroutine connects to the API server, watches the nodes,
// and connects again after an outage.
type connection struct {
	registry      *Registry
	namespace     string
	source        atomic.Pointer[source]
	sourceChanged chan struct{} // gets an element when source has changed
	target        atomic.Pointer[cache.Target]
	cancel        context.CancelFunc // ends the goroutine
	sourceInputs  sourceInputs       // what source was read from; the Registry's mutex protects it
	// downSince is the time since which the target is not Ready. Only the goroutine uses downSince, also across
	// connections.
	downSince time.Time
}

// setSource stores the source from the present Secrets.
func (c *connection) setSource(s source) {
	if before := c.source.Swap(
		&s,
	); before != nil && before.canShareConnection(s) &&
		before.kubeconfig.Token == s.kubeconfig.Token {
		return
	}
	select {
	case c.sourceChanged <- struct{}{}:
	default:
	}
}

// run keeps the target of the namespace connected until ctx ends.
func (c *connection) run(ctx context.Context) {
	c.downSince = time.Now()
	limiter := rate.NewLimiter(rate.Every(connectInterval), connectBurst)
	for ctx.Err() == nil {
		var nextConnect <-chan time.Time
		switch s := *c.source.Load(); {
		case s.hasNoCluster:
			c.setTarget(nil)
		case s.isHeld:
			c.setTarget(refusingTarget(cache.TargetHeld, "the namespace is held"))
		case s.missingReason != "":
			c.setTarget(refusingTarget(cache.TargetMissing, s.missingReason))
		default:
			reservation := limiter.Reserve()
			if delay := reservation.Delay(); delay > 0 {
				reservation.Cancel()
				nextConnect = time.After(delay)
				c.setTarget(
					refusingTarget(
						cache.TargetMissing,
						"the kubeconfig has changed often; the next attempt to connect follows within a minute",
					),
				)
				break
			}
			c.serveConnection(ctx, s)
			continue
		}
		select {
		case <-ctx.Done():
		case <-c.sourceChanged:
		case <-nextConnect:
		}
	}
}

// refusingTarget returns a target that refuses every request.
func refusingTarget(state cache.TargetState, why string) *cache.Target {
	// The client of a link that stays down sends no request, so no address is needed.
	config := &rest.Config{Host: "https://missing.invalid", WrapTransport: newCircuitBreaker().wrapTransport}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		panic(err) // cannot happen: the configuration is constant
	}
	target := cache.NewTarget(client, "")
	target.SetStatus(cache.TargetStatus{State: state, Message: why, Since: time.Now()})
	return target
}

// setTarget replaces the target of the namespace. The new target has the absences of the former one.
func (c *connection) setTarget(target *cache.Target) {
	if target != nil {
		for _, absence := range c.target.Load().Absences() {
			target.AddAbsence(absence)
		}
	}
	c.registry.publishTarget(c, target)
}

// session is one connection to the API server of a target.
type session struct {
	*connection
	ctx           context.Context // ends when the connection ends
	source        source
	client        *Client
	breaker       *circuitBreaker
	currentTarget *cache.Target

	areCachesStarted, areCachesFilled bool // whether the caches run, and whether they were filled once
}

// serveConnection serves one connection until the source needs another connection, until the API server was restored to
// a former state, or until ctx ends.
func (c *connection) serveConnection(ctx context.Context, s source) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := session{connection: c, ctx: ctx, source: s, breaker: newCircuitBreaker()}
	restores := cache.NewRestoreDetector()
	target, err := now.newTarget(restores)
	if err != nil {
		// The error is not shown: it may quote a part of the kubeconfig.
		c.setTarget(refusingTarget(cache.TargetMissing, "the kubeconfig has certificates or keys that cannot be used"))
		select {
		case <-ctx.Done():
		case <-c.sourceChanged:
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
	for now.reconnect(ctx) {
		if end := time.Now(); end.Sub(c.downSince) >= minOutageDuration {
			target.AddAbsence(cache.WorkerAbsence{From: c.downSince, To: end})
		}
		now.setStatus(cache.TargetReady, "", time.Now())
		if !now.awaitOutage(ctx, restored) {
			c.downSince = time.Now()
			return
		}
		var why string
		c.downSince, why = now.breaker.currentOutage()
		now.setStatus(cache.TargetUnavailable, why, c.downSince)
	}
}

// newTarget makes the client, and returns a target that is not connected yet.
func (s *session) newTarget(restores *cache.RestoreDetector) (*cache.Target, error) {
	options, identity := s.registry.options, s.source.kubeconfig.ClusterID
	client, err := s.client.Renew(s.source.kubeconfig, func(config *rest.Config) (kubernetes.Interface, error) {
		config = restores.ConfigWithRestoreCheck(config)
		config.Wrap(s.breaker.wrapTransport)
		return options.NewClient(config)
	})
	if err != nil {
		return nil, err
	}
	target := cache.NewTarget(client.Clientset, identity)
	s.client, s.currentTarget = client, target
	if err := target.WatchNodes(); err != nil {
		return nil, err
	}
	err = target.Informer(cache.NodesResource).SetWatchErrorHandlerWithContext(logWatchError)
	if err != nil {
		return nil, err
	}
	if options.DrainsNodes {
		target.WatchDrainResourcesOnDemand()
	}
	target.SetStatus(cache.TargetStatus{
		State: cache.TargetConnecting, Message: "the first attempt to connect has not ended", Since: time.Now(),
	})
	return target, nil
}

// logWatchError logs why a watch ended. The requests that a link refuses are not logged: the status of the target
// has the reason.
func logWatchError(ctx context.Context, r *toolscache.Reflector, err error) {
	if !errors.Is(err, errUnavailable) {
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

func (s *session) setStatus(state cache.TargetState, why string, since time.Time) {
	status := cache.TargetStatus{State: state, Message: phrase.TruncateText(why, maxMessageBytes), Since: since}
	s.registry.publishStatus(s.connection, s.currentTarget, status)
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
		case <-s.breaker.outageSignal:
			return true
		case <-s.sourceChanged:
			if !s.updateToken() {
				return false
			}
		}
	}
}

// updateToken uses the present token of the source for the next request. updateToken returns false if the source needs
// another connection.
func (s *session) updateToken() bool {
	now := s.connection.source.Load()
	if !now.canShareConnection(s.source) {
		return false
	}
	s.client.guard.token.Store(&now.kubeconfig.Token)
	return true
}

// reconnect tries to connect until the API server answers and the cache of nodes is filled. reconnect returns false if
// the source needs another connection, or ctx ends. A change of the Secret ends a delay, because new credentials may
// work.
func (s *session) reconnect(ctx context.Context) bool {
	for delay := firstRetryDelay; ctx.Err() == nil && s.updateToken(); {
		err := s.tryConnect(ctx)
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		before := s.currentTarget.Status()
		s.setStatus(before.State, requestErrorText(err), before.Since)
		select {
		case <-ctx.Done():
		case <-s.sourceChanged:
		case <-time.After(delay + rand.N(delay/5)):
			delay = min(2*delay, maxRetryDelay)
		}
	}
	return false
}

// tryConnect sends one request. If the API server answers, tryConnect lets all requests pass, and waits until the cache
// of nodes is filled and current.
func (s *session) tryConnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cacheFillTimeout)
	defer cancel()
	_, err := s.currentTarget.Client().CoreV1().Nodes().
		List(context.WithValue(ctx, probeContextKey{}, true), metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s.breaker.allowRequests()
	if !s.areCachesStarted {
		s.areCachesStarted = true
		s.currentTarget.Start(s.ctx)
	}
	if s.areCachesFilled {
		return s.awaitCurrentNodes(ctx)
	}
	if err := s.currentTarget.AwaitFilledCaches(ctx); err != nil {
		return err //nolint:wrapcheck // the error names the cache
	}
	s.areCachesFilled = true
	return nil
}

// awaitCurrentNodes waits until the cache has all changes of nodes from an outage: a decision must not take the node of
// the time before the outage for the present node. awaitCurrentNodes returns an error if ctx ends first.
func (s *session) awaitCurrentNodes(ctx context.Context) error {
	list, err := s.currentTarget.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for !s.isCacheAsNewAs(list) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the watch of nodes: %w", context.Cause(ctx))
		case <-time.After(nodeComparisonInterval):
		}
	}
	return nil
}

// isCacheAsNewAs reports whether the cache of nodes is as new as a list.
func (s *session) isCacheAsNewAs(list *corev1.NodeList) bool {
	listed := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		listed[list.Items[i].Name] = true
		node, found := s.currentTarget.Node(list.Items[i].Name)
		if !found || cache.IsNewerVersion(list.Items[i].ResourceVersion, node.ResourceVersion) {
			return false
		}
	}
	return !slices.ContainsFunc(s.currentTarget.AllNodes(), func(node *corev1.Node) bool {
		return !listed[node.Name] && !cache.IsNewerVersion(node.ResourceVersion, list.ResourceVersion) // deleted meanwhile
	})
}
