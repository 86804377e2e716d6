package target

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"millwright/observe/cache"
)

// Options configure where a process finds the targets of namespaces.
type Options struct {
	Secret string // name of the Secret with a kubeconfig, in each namespace
	Key    string // key of the kubeconfig in the Secret
	// TokenSecret is the name of the Secret in the same namespace that has the bearer token under the key "token"; empty:
	// the kubeconfig has the credentials.
	TokenSecret string
	// Namespaces are the namespaces whose Secrets are read; empty: all namespaces.
	Namespaces []string
	// Serves reports whether this process serves the objects of a namespace. For other namespaces, a connection is made
	// only on demand.
	Serves func(namespace string) bool
	// IsInScope reports whether the installation acts on a namespace. No connection is made for other namespaces.
	IsInScope func(namespace string) bool
	// IsHeld reports whether a namespace is held: the connection of the namespace then sends no request. Nil: no hold.
	IsHeld func(namespace string) bool
	// Connect makes the client of a target.
	Connect func(config *rest.Config) (kubernetes.Interface, error)
	Drains  bool // this process drains nodes
	// OnStatus is called when the status of a namespace's target has changed; nil: no call. OnStatus must not block, and
	// must not call the Registry.
	OnStatus func(namespace string, status cache.TargetStatus)
	// OnEnd is called when this process no longer needs the target of a namespace; nil: no call. OnEnd must not block, and
	// must not call the Registry.
	OnEnd func(namespace string)
}

// NoCluster is the value of a kubeconfig's key if the machines of the namespace join no cluster.
const NoCluster = "none"

// tokenKey is the key of the token in the Secret TokenSecret. Source: Gardener's token requestor.
const tokenKey = "token"

// Registry has the targets of all namespaces that this process serves. A Registry is a cache.TargetSource. All methods
// are safe for concurrent use.
type Registry struct {
	options Options
	secrets map[string][]toolscache.SharedIndexInformer // by the name of the Secret
	unknown sync.Map                                    // namespace → *cache.Target, for namespaces without a connection

	mu          sync.Mutex
	ctx         context.Context // nil before Start
	connections map[string]*connection
	demands     map[string]time.Time // time of the last demand, by namespaces that this process does not serve
	handlers    map[int]func(namespace string, target *cache.Target)
	nextHandler int
}

// New returns a Registry that reads Secrets with a client of the control cluster. Call Start once.
func New(client kubernetes.Interface, options Options) *Registry {
	r := &Registry{
		options:     options,
		secrets:     map[string][]toolscache.SharedIndexInformer{},
		connections: map[string]*connection{},
		demands:     map[string]time.Time{},
		handlers:    map[int]func(string, *cache.Target){},
	}
	namespaces := options.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, name := range []string{options.Secret, options.TokenSecret} {
		if name == "" {
			continue
		}
		for _, namespace := range namespaces {
			factory := informers.NewSharedInformerFactoryWithOptions(
				client, 0,
				informers.WithNamespace(namespace),
				informers.WithTransform(r.stripSecret),
				informers.WithTweakListOptions(func(o *metav1.ListOptions) {
					o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
				}),
			)
			r.secrets[name] = append(r.secrets[name], factory.Core().V1().Secrets().Informer())
		}
	}
	return r
}

// stripSecret keeps only the fields of a Secret that a connection needs.
func (r *Registry) stripSecret(object any) (any, error) {
	secret, isSecret := object.(*corev1.Secret)
	if !isSecret {
		return object, nil
	}
	kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion,
	}, Data: map[string][]byte{}}
	for _, key := range []string{r.options.Key, tokenKey} {
		if value, found := secret.Data[key]; found {
			kept.Data[key] = value
		}
	}
	return kept, nil
}

// Start reads the Secrets, and connects to the targets in goroutines of its own, until ctx ends. Start returns when the
// Secrets are read, and does not wait for a connection. Start returns an error if ctx ends first.
func (r *Registry) Start(ctx context.Context) error {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	for name, list := range r.secrets {
		for _, informer := range list {
			_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(o any) { r.readNamespace(namespaceOf(o)) },
				UpdateFunc: func(_, o any) { r.readNamespace(namespaceOf(o)) },
				DeleteFunc: func(o any) { r.readNamespace(namespaceOf(o)) },
			})
			if err != nil {
				return fmt.Errorf("watch Secrets %s: %w", name, err)
			}
			go informer.RunWithContext(ctx)
		}
	}
	for name, list := range r.secrets {
		for _, informer := range list {
			if !toolscache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
				return fmt.Errorf("read Secrets %s: %w", name, context.Cause(ctx))
			}
		}
	}
	go wait.UntilWithContext(ctx, func(context.Context) { r.Refresh() }, refreshInterval)
	return nil
}

func namespaceOf(object any) string {
	if gone, isGone := object.(toolscache.DeletedFinalStateUnknown); isGone {
		object = gone.Obj
	}
	if o, isObject := object.(metav1.Object); isObject {
		return o.GetNamespace()
	}
	return ""
}

// refreshInterval is the interval at which a Registry checks which namespaces this process serves. Source: labels
// of namespaces seldom change, and the check sends no request.
const refreshInterval = 30 * time.Second

// demandTime is how long a connection stays after the last demand.
const demandTime = 10 * time.Minute

// Demand implements cache.TargetSource.
func (r *Registry) Demand(namespace string) {
	if r.options.Serves(namespace) {
		return
	}
	r.mu.Lock()
	r.demands[namespace] = time.Now()
	_, isConnected := r.connections[namespace]
	r.mu.Unlock()
	if !isConnected {
		r.readNamespace(namespace)
	}
}

// needsConnection reports whether the target of a namespace must be connected. The caller must have locked r.mu.
func (r *Registry) needsConnection(namespace string) bool {
	if namespace == "" || r.ctx == nil || !r.options.IsInScope(namespace) {
		return false
	}
	if r.options.Serves(namespace) {
		delete(r.demands, namespace)
		return true
	}
	if demand, found := r.demands[namespace]; found && time.Since(demand) < demandTime {
		return true
	}
	delete(r.demands, namespace)
	return false
}

// Refresh reads again which namespaces this process serves.
func (r *Registry) Refresh() {
	for _, informer := range r.secrets[r.options.Secret] {
		for _, secret := range informer.GetStore().List() {
			r.readNamespace(namespaceOf(secret))
		}
	}
	r.mu.Lock()
	known := make([]string, 0, len(r.connections))
	for namespace := range r.connections {
		known = append(known, namespace)
	}
	r.mu.Unlock()
	for _, namespace := range known {
		r.readNamespace(namespace)
	}
}

// readNamespace starts, updates or ends the connection of a namespace, as the namespace's Secrets require.
func (r *Registry) readNamespace(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.connections[namespace]
	if !r.needsConnection(namespace) {
		if c != nil && !c.target.Load().IsDraining() { // a drain holds the connection; Refresh ends it later
			r.endConnection(c)
		}
		return
	}
	from := origin{
		secret: r.secret(namespace, r.options.Secret), token: r.secret(namespace, r.options.TokenSecret),
		isHeld: r.options.IsHeld != nil && r.options.IsHeld(namespace),
	}
	if c != nil && c.origin == from {
		return
	}
	s := r.options.sourceOf(namespace, from.secret, from.token)
	s.isHeld = from.isHeld
	if c != nil {
		c.origin = from
		c.setSource(s)
		return
	}
	ctx, end := context.WithCancel(r.ctx)
	c = &connection{registry: r, namespace: namespace, changed: make(chan struct{}, 1), end: end, origin: from}
	c.source.Store(&s)
	c.target.Store(refusingTarget(cache.TargetMissing, "the first attempt to connect has not begun"))
	r.connections[namespace] = c
	go c.run(ctx)
}

// endConnection ends a connection. The caller must have locked r.mu.
func (r *Registry) endConnection(c *connection) {
	c.end()
	delete(r.connections, c.namespace)
	r.handle(c.namespace, nil)
	if r.options.OnEnd != nil {
		r.options.OnEnd(c.namespace)
	}
}

// sourceOf returns the source from the Secrets of a namespace; nil means that a Secret does not exist.
func (o Options) sourceOf(namespace string, secret, tokenSecret *corev1.Secret) source {
	if secret == nil {
		return source{missing: o.missingSecret(namespace)}
	}
	text := secret.Data[o.Key]
	if string(text) == NoCluster {
		return source{none: true}
	}
	token := ""
	if o.TokenSecret != "" {
		if tokenSecret == nil || len(tokenSecret.Data[tokenKey]) == 0 {
			return source{missing: fmt.Sprintf("Secret %s/%s with a token does not exist", namespace, o.TokenSecret)}
		}
		token = string(tokenSecret.Data[tokenKey])
	}
	kubeconfig, err := ParseKubeconfig(text, o.Key, token)
	if err != nil {
		return source{missing: fmt.Sprintf("Secret %s/%s: %v", namespace, o.Secret, err)}
	}
	return source{kubeconfig: kubeconfig}
}

func (o Options) missingSecret(namespace string) string {
	return fmt.Sprintf("Secret %s/%s with a kubeconfig does not exist", namespace, o.Secret)
}

func (r *Registry) secret(namespace, name string) *corev1.Secret {
	for _, informer := range r.secrets[name] {
		if item, found, err := informer.GetStore().GetByKey(namespace + "/" + name); err == nil && found {
			return item.(*corev1.Secret)
		}
	}
	return nil
}

// Target implements cache.TargetSource. For a namespace without a connection, Target returns a target that refuses
// every request with the reason.
func (r *Registry) Target(namespace string) *cache.Target {
	r.mu.Lock()
	c := r.connections[namespace]
	r.mu.Unlock()
	if c != nil {
		return c.target.Load()
	}
	if known, found := r.unknown.Load(namespace); found {
		return known.(*cache.Target)
	}
	made, _ := r.unknown.LoadOrStore(namespace, refusingTarget(cache.TargetMissing, r.options.missingSecret(namespace)))
	return made.(*cache.Target)
}

// OnTarget implements cache.TargetSource.
func (r *Registry) OnTarget(handle func(namespace string, target *cache.Target)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.nextHandler
	r.nextHandler++
	r.handlers[id] = handle
	for namespace, c := range r.connections {
		handle(namespace, c.target.Load())
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.handlers, id)
	}
}

// Namespaces returns the namespaces with a connection, sorted.
func (r *Registry) Namespaces() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]string, 0, len(r.connections))
	for namespace := range r.connections {
		list = append(list, namespace)
	}
	slices.Sort(list)
	return list
}

// report stores the new target of a connection, and calls the handlers with the target and its status. report does
// nothing after the end of the connection.
func (r *Registry) report(c *connection, target *cache.Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connections[c.namespace] != c {
		return
	}
	c.target.Store(target)
	r.handle(c.namespace, target)
	if r.options.OnStatus != nil {
		r.options.OnStatus(c.namespace, target.Status())
	}
}

// handle calls the handlers with a new target. The caller must have locked r.mu.
func (r *Registry) handle(namespace string, target *cache.Target) {
	for _, handle := range r.handlers {
		handle(namespace, target)
	}
}

// reportStatus sets the status of a connection's target, and calls OnStatus unless the connection has ended.
func (r *Registry) reportStatus(c *connection, target *cache.Target, status cache.TargetStatus) {
	target.SetStatus(status)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options.OnStatus != nil && r.connections[c.namespace] == c {
		r.options.OnStatus(c.namespace, status)
	}
}
