package dashboard

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/observe/target"
	"millwright/starter/explain"
	starterfleet "millwright/starter/fleet"
	"millwright/starter/kubecli"
)

// processInterval is the time between two reads of the heartbeats and of the states of target clusters. A process that
// is down is noticed after 45 s, so 5 s more do not matter.
const processInterval = 5 * time.Second

// watcher keeps the objects that the pages show, with one watch for each resource, however many pages are open.
type watcher struct {
	clients   kubecli.Clients
	namespace string // empty: all namespaces
	context   string
	now       func() time.Time
	informers map[string]cache.SharedIndexInformer // by the name of the resource

	mutex      sync.Mutex
	errors     map[string]string // what cannot be read: the reason, by the name of the resource
	processes  []explain.Heartbeat
	targets    map[string]target.Report
	unserved   map[string]string
	version    uint64        // changes whenever a page may change
	changed    chan struct{} // closed when version changes
	fleet      *fleet        // model of fleetOf
	fleetOf    uint64        // version of fleet
	fleetBuilt time.Time
}

func newWatcher(clients kubecli.Clients, namespace, contextName string, now func() time.Time) *watcher {
	w := &watcher{
		clients: clients, namespace: namespace, context: contextName, now: now,
		informers: map[string]cache.SharedIndexInformer{}, errors: map[string]string{}, changed: make(chan struct{}),
		version: 1,
	}
	api := clients.MachineClient.MachineV1alpha1()
	addInformer(w, "machinedeployments", &v1alpha1.MachineDeployment{}, cacheNative,
		api.MachineDeployments(namespace), clients.MachineClient)
	addInformer(w, "machinesets", &v1alpha1.MachineSet{}, cacheNative, api.MachineSets(namespace), clients.MachineClient)
	addInformer(w, "machines", &v1alpha1.Machine{}, cacheNative, api.Machines(namespace), clients.MachineClient)
	return w
}

// addClusterAPI adds the resources of Cluster API if the API server serves them. It returns false if the API server does
// not answer.
func (w *watcher) addClusterAPI() (known bool) {
	served, err := w.clients.ClusterAPI.IsServed()
	w.setError("objects of Cluster API", err)
	if err != nil || !served {
		return err == nil
	}
	const group = ".cluster.x-k8s.io"
	client := w.clients.ClusterAPI.Client()
	addInformer(w, "machinedeployments"+group, &clusterv1.MachineDeployment{}, cacheClusterAPI,
		client.Deployments(w.namespace), nil)
	addInformer(w, "machinesets"+group, &clusterv1.MachineSet{}, cacheClusterAPI, client.MachineSets(w.namespace), nil)
	addInformer(w, "machines"+group, &clusterv1.Machine{}, cacheClusterAPI, client.Machines(w.namespace), nil)
	return true
}

// listerWatcher is the part of a typed client that an informer needs.
type listerWatcher[L any] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// addInformer adds a cache of the objects of one resource. semantics is the client, which says whether its server can
// stream lists; nil if the client does not say so.
func addInformer[L runtime.Object](
	w *watcher,
	resource string,
	example runtime.Object,
	transform cache.TransformFunc,
	client listerWatcher[L],
	semantics any,
) {
	var source cache.ListerWatcher = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			found, err := client.List(ctx, o)
			w.setError(resource, err)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := client.Watch(ctx, o)
			if err == nil || !apierrors.IsResourceExpired(err) && !apierrors.IsInvalid(err) {
				w.setError(resource, err)
			}
			return events, err
		},
	}
	if semantics != nil {
		source = cache.ToListWatcherWithWatchListSemantics(source.(*cache.ListWatch), semantics)
	}
	informer := cache.NewSharedIndexInformer(source, example, 0, nil)
	// These methods fail only after the informer has started or has ended.
	_ = informer.SetTransform(transform)
	// the pages show the error; a log would mix with the output of the command
	_ = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.bump() },
		UpdateFunc: func(any, any) { w.bump() },
		DeleteFunc: func(any) { w.bump() },
	})
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.informers[resource] = informer
}

// run watches until ctx is done.
func (w *watcher) run(ctx context.Context) {
	var group sync.WaitGroup
	running := map[string]bool{}
	ticker := time.NewTicker(processInterval)
	defer ticker.Stop()
	for isClusterAPIKnown := false; ; {
		isClusterAPIKnown = isClusterAPIKnown || w.addClusterAPI()
		for resource, informer := range w.informers {
			if !running[resource] {
				running[resource] = true
				group.Go(func() { informer.RunWithContext(ctx) })
			}
		}
		w.readProcesses(ctx)
		select {
		case <-ctx.Done():
			group.Wait()
			return
		case <-ticker.C:
		}
	}
}

// readProcesses reads the heartbeats and the states of the target clusters. Ages in their texts are as old as the read,
// so a page changes with each of them.
func (w *watcher) readProcesses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, processInterval)
	defer cancel()
	var processes []explain.Heartbeat
	var targets map[string]target.Report
	var unserved map[string]string
	var err error
	if w.clients.Leases != nil {
		processes = explain.ReadHeartbeats(ctx, w.clients.Leases, metav1.NamespaceAll, w.now())
	}
	if w.clients.Core != nil {
		targets, err = starterfleet.ReadTargetReports(ctx, w.clients, w.now())
	}
	if w.clients.Core != nil && err == nil {
		unserved, err = starterfleet.ReadUnservedReasons(ctx, w.clients, w.namespaces(), w.now())
	}
	if ctx.Err() != nil && err != nil {
		return // the process ends, or the API server does not answer, which the watches report
	}
	w.setError("states of shards and target clusters", err)
	w.mutex.Lock()
	w.processes, w.targets, w.unserved = processes, targets, unserved
	w.mutex.Unlock()
	w.bump()
}

// namespaces returns the namespaces with machine objects.
func (w *watcher) namespaces() (names []string) {
	for _, c := range w.current().clusters {
		if !slices.Contains(names, c.key.Namespace) {
			names = append(names, c.key.Namespace)
		}
	}
	return names
}

// setError records that a resource can be read, or why not.
func (w *watcher) setError(resource string, err error) {
	text := ""
	if err != nil {
		text = errorText(err)
		if apierrors.IsForbidden(err) && w.namespace == "" {
			text += "; with --namespace, the command reads one namespace only"
		}
	}
	w.mutex.Lock()
	changed := w.errors[resource] != text
	if w.errors[resource] = text; text == "" {
		delete(w.errors, resource)
	}
	w.mutex.Unlock()
	if changed {
		w.bump()
	}
}

// errorText returns the text of an error. If the API server cannot be reached, the text has no address of a request, so
// that it is the same for all resources.
func errorText(err error) string {
	if failed, is := errors.AsType[*url.Error](err); is {
		return "the API server does not answer: " + kubecli.CollapseSpaces(failed.Err.Error())
	}
	return kubecli.CollapseSpaces(err.Error())
}

// bump tells the open pages that they may have changed.
func (w *watcher) bump() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.version++
	close(w.changed)
	w.changed = make(chan struct{})
}

// changes returns the present version, and a channel that is closed when it changes.
func (w *watcher) changes() (version uint64, changed <-chan struct{}) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.version, w.changed
}

// maxFleetAge is how old a model may be although nothing changed: the times in it say how long ago something was.
const maxFleetAge = 5 * time.Second

// minFleetAge is how long a model is used although something changed: many pages and many changes cost one model.
const minFleetAge = time.Second

// current returns the model of the objects as they are now.
func (w *watcher) current() *fleet {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	age := time.Since(w.fleetBuilt)
	if w.fleet != nil && age < maxFleetAge && (w.fleetOf == w.version || age < minFleetAge) {
		return w.fleet
	}
	w.fleet, w.fleetOf, w.fleetBuilt = buildFleet(w.snapshot()), w.version, time.Now()
	return w.fleet
}

// snapshot returns the objects in the caches. The caller holds the mutex.
func (w *watcher) snapshot() snapshot {
	s := snapshot{
		processes: w.processes,
		targets:   w.targets,
		unserved:  w.unserved,
		context:   w.context,
		namespace: w.namespace,
		now:       w.now(),
	}
	for resource, informer := range w.informers {
		for _, object := range informer.GetStore().List() {
			s.addObject(object)
		}
		_, failed := w.errors[resource]
		s.isLoading = s.isLoading || !failed && !informer.HasSynced()
	}
	s.readErrors = readErrorLines(w.errors)
	return s
}

// readErrorLines returns a line for each reason for which resources cannot be read.
func readErrorLines(reasons map[string]string) (lines []string) {
	byReason := map[string][]string{}
	for _, resource := range slices.Sorted(maps.Keys(reasons)) {
		byReason[reasons[resource]] = append(byReason[reasons[resource]], resource)
	}
	for why, resources := range byReason {
		last := len(resources) - 1
		names := resources[last]
		if last > 0 {
			names = strings.Join(resources[:last], ", ") + " and " + names
		}
		lines = append(lines, names+" cannot be read: "+why)
	}
	slices.Sort(lines)
	return lines
}

// addObject adds an object of a cache.
func (s *snapshot) addObject(object any) {
	switch o := object.(type) {
	case *cached[*deploymentFacts]:
		if o.facts != nil {
			s.deployments = append(s.deployments, o.facts)
		}
	case *cached[*setFacts]:
		s.sets = append(s.sets, o.facts)
	case *cached[*machineFacts]:
		s.machines = append(s.machines, o.facts)
	}
}
