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
	SecretName    string // name of the Secret with a kubeconfig, in each namespace
	KubeconfigKey string // key of the kubeconfig in the Secret
	// TokenSecretName is the name of the Secret in the same namespace that has the bearer token under the key "token";
	// empty: the kubeconfig has the credentials.
	TokenSecretName string
	// Namespaces are the namespaces whose Secrets are read; empty: all namespaces.
	Namespaces []string
	// IsServed reports whether this process serves the objects of a namespace. For other namespaces, a connection is made
	// only on demand.
	IsServed func(namespace string) bool
	// IsInScope reports whether the installation acts on a namespace. No connection is made for other namespaces.
	IsInScope func(namespace string) bool
	// IsHeld reports whether a namespace is held: the connection of the namespace then sends no request. Nil: no hold.
	IsHeld func(namespace string) bool
	// NewClient makes the client of a target.
	NewClient   func(config *rest.Config) (kubernetes.Interface, error)
	DrainsNodes bool // this process drains nodes
	// OnStatus is called when the status of a namespace's target has changed; nil: no call. OnStatus must not block, and
	// must not call the Registry.
	OnStatus func(namespace string, status cache.TargetStatus)
	// OnTargetEnd is called when this process no longer needs the target of a namespace; nil: no call. OnTargetEnd must
	// not block, and must not call the Registry.
	OnTargetEnd func(namespace string)
}

// NoClusterValue is the value of a kubeconfig's key if the machines of the namespace join no cluster.
const NoClusterValue = "none"

// tokenKey is the key of the token in the Secret TokenSecretName. Source: Gardener's token requestor.
const tokenKey = "token"

// Registry has the targets of all namespaces that this process serves. A Registry is a cache.TargetSource. All methods
// are safe for concurrent use.
type Registry struct {
	options            Options
	secretInformers    map[string][]toolscache.SharedIndexInformer // by the name of the Secret
	unconnectedTargets sync.Map                                    // namespace → *cache.Target, for namespaces without a connection

	mu              sync.Mutex
	ctx             context.Context // nil before Start
	connections     map[string]*connection
	lastDemandTimes map[string]time.Time // time of the last demand, by namespaces that this process does not serve
	handlers        map[int]func(namespace string, target *cache.Target)
	nextHandlerID   int
}

// New returns a Registry that reads Secrets with a client of the control cluster. Call Start once.
func New(client kubernetes.Interface, options Options) *Registry {
	r := &Registry{
		options:         options,
		secretInformers: map[string][]toolscache.SharedIndexInformer{},
		connections:     map[string]*connection{},
		lastDemandTimes: map[string]time.Time{},
		handlers:        map[int]func(string, *cache.Target){},
	}
	namespaces := options.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, name := range []string{options.SecretName, options.TokenSecretName} {
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
			r.secretInformers[name] = append(r.secretInformers[name], factory.Core().V1().Secrets().Informer())
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
	for _, key := range []string{r.options.KubeconfigKey, tokenKey} {
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
	for name, list := range r.secretInformers {
		for _, informer := range list {
			_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(o any) { r.updateConnection(namespaceOf(o)) },
				UpdateFunc: func(_, o any) { r.updateConnection(namespaceOf(o)) },
				DeleteFunc: func(o any) { r.updateConnection(namespaceOf(o)) },
			})
			if err != nil {
				return fmt.Errorf("watch Secrets %s: %w", name, err)
			}
			go informer.RunWithContext(ctx)
		}
	}
	for name, list := range r.secretInformers {
		for _, informer := range list {
			if !toolscache.WaitFor(ctx, "", informer.HasSyncedChecker()) {
				return fmt.Errorf("read Secrets %s: %w", name, context.Cause(ctx))
			}
		}
	}
	go wait.UntilWithContext(ctx, func(context.Context) { r.RefreshConnections() }, refreshInterval)
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

// demandLifetime is how long a connection stays after the last demand.
const demandLifetime = 10 * time.Minute

// KeepConnected implements cache.TargetSource.
func (r *Registry) KeepConnected(namespace string) {
	if r.options.IsServed(namespace) {
		return
	}
	r.mu.Lock()
	r.lastDemandTimes[namespace] = time.Now()
	_, isConnected := r.connections[namespace]
	r.mu.Unlock()
	if !isConnected {
		r.updateConnection(namespace)
	}
}

// needsConnection reports whether the target of a namespace must be connected. The caller must have locked r.mu.
func (r *Registry) needsConnection(namespace string) bool {
	if namespace == "" || r.ctx == nil || !r.options.IsInScope(namespace) {
		return false
	}
	if r.options.IsServed(namespace) {
		delete(r.lastDemandTimes, namespace)
		return true
	}
	if demand, found := r.lastDemandTimes[namespace]; found && time.Since(demand) < demandLifetime {
		return true
	}
	delete(r.lastDemandTimes, namespace)
	return false
}

// RefreshConnections reads again which namespaces this process serves.
func (r *Registry) RefreshConnections() {
	for _, informer := range r.secretInformers[r.options.SecretName] {
		for _, secret := range informer.GetStore().List() {
			r.updateConnection(namespaceOf(secret))
		}
	}
	r.mu.Lock()
	known := make([]string, 0, len(r.connections))
	for namespace := range r.connections {
		known = append(known, namespace)
	}
	r.mu.Unlock()
	for _, namespace := range known {
		r.updateConnection(namespace)
	}
}

// updateConnection starts, updates or ends the connection of a namespace, as the namespace's Secrets require.
func (r *Registry) updateConnection(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.connections[namespace]
	if !r.needsConnection(namespace) {
		if c != nil && !c.target.Load().HasActiveDrain() { // a drain holds the connection; Refresh ends it later
			r.endConnection(c)
		}
		return
	}
	from := sourceInputs{
		kubeconfigSecret: r.findSecret(
			namespace,
			r.options.SecretName,
		),
		tokenSecret: r.findSecret(namespace, r.options.TokenSecretName),
		isHeld:      r.options.IsHeld != nil && r.options.IsHeld(namespace),
	}
	if c != nil && c.sourceInputs == from {
		return
	}
	s := r.options.newSource(namespace, from.kubeconfigSecret, from.tokenSecret)
	s.isHeld = from.isHeld
	if c != nil {
		c.sourceInputs = from
		c.setSource(s)
		return
	}
	ctx, end := context.WithCancel(r.ctx)
	c = &connection{
		registry:      r,
		namespace:     namespace,
		sourceChanged: make(chan struct{}, 1),
		cancel:        end,
		sourceInputs:  from,
	}
	c.source.Store(&s)
	c.target.Store(refusingTarget(cache.TargetMissing, "the first attempt to connect has not begun"))
	r.connections[namespace] = c
	go c.run(ctx)
}

// endConnection ends a connection. The caller must have locked r.mu.
func (r *Registry) endConnection(c *connection) {
	c.cancel()
	delete(r.connections, c.namespace)
	r.callHandlers(c.namespace, nil)
	if r.options.OnTargetEnd != nil {
		r.options.OnTargetEnd(c.namespace)
	}
}

// newSource returns the source from the Secrets of a namespace; nil means that a Secret does not exist.
func (o Options) newSource(namespace string, secret, tokenSecret *corev1.Secret) source {
	if secret == nil {
		return source{missingReason: o.missingSecretText(namespace)}
	}
	text := secret.Data[o.KubeconfigKey]
	if string(text) == NoClusterValue {
		return source{hasNoCluster: true}
	}
	token := ""
	if o.TokenSecretName != "" {
		if tokenSecret == nil || len(tokenSecret.Data[tokenKey]) == 0 {
			return source{missingReason: fmt.Sprintf("Secret %s/%s with a token does not exist", namespace, o.TokenSecretName)}
		}
		token = string(tokenSecret.Data[tokenKey])
	}
	kubeconfig, err := ParseKubeconfig(text, o.KubeconfigKey, token)
	if err != nil {
		return source{missingReason: fmt.Sprintf("Secret %s/%s: %v", namespace, o.SecretName, err)}
	}
	return source{kubeconfig: kubeconfig}
}

func (o Options) missingSecretText(namespace string) string {
	return fmt.Sprintf("Secret %s/%s with a kubeconfig does not exist", namespace, o.SecretName)
}

func (r *Registry) findSecret(namespace, name string) *corev1.Secret {
	for _, informer := range r.secretInformers[name] {
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
	if known, found := r.unconnectedTargets.Load(namespace); found {
		return known.(*cache.Target)
	}
	made, _ := r.unconnectedTargets.LoadOrStore(
		namespace,
		refusingTarget(cache.TargetMissing, r.options.missingSecretText(namespace)),
	)
	return made.(*cache.Target)
}

// OnTarget implements cache.TargetSource.
func (r *Registry) OnTarget(handle func(namespace string, target *cache.Target)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.nextHandlerID
	r.nextHandlerID++
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

// publishTarget stores the new target of a connection, and calls the handlers with the target and its status.
// publishTarget does nothing after the end of the connection.
func (r *Registry) publishTarget(c *connection, target *cache.Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connections[c.namespace] != c {
		return
	}
	c.target.Store(target)
	r.callHandlers(c.namespace, target)
	if r.options.OnStatus != nil {
		r.options.OnStatus(c.namespace, target.Status())
	}
}

// callHandlers calls the handlers with a new target. The caller must have locked r.mu.
func (r *Registry) callHandlers(namespace string, target *cache.Target) {
	for _, handle := range r.handlers {
		handle(namespace, target)
	}
}

// publishStatus sets the status of a connection's target, and calls OnStatus unless the connection has ended.
func (r *Registry) publishStatus(c *connection, target *cache.Target, status cache.TargetStatus) {
	target.SetStatus(status)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options.OnStatus != nil && r.connections[c.namespace] == c {
		r.options.OnStatus(c.namespace, status)
	}
}
