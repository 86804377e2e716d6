package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/takeover"
	"millwright/observe/cache"
	"millwright/observe/class"
	"millwright/observe/target"
	"millwright/process"
	"millwright/starter/kubecli"
)

// mcmDeploymentName is the name of MCM's Deployment.
const mcmDeploymentName = "machine-controller-manager"

// namespaceObjects are the objects of a namespace, and the nodes of its machines.
type namespaceObjects struct {
	now         time.Time
	actsAsMCM   bool
	hasNoNodes  bool // the machines join no cluster
	classes     map[string]*v1alpha1.MachineClass
	deployments []*v1alpha1.MachineDeployment
	sets        []*v1alpha1.MachineSet
	machines    []*v1alpha1.Machine
	policies    []*v1alpha1.RolloutPolicy
	nodes       map[string]*corev1.Node
}

// readFacts reads the namespace, and adds Millwright's decision about each object. A failed read is an entry of
// Facts.Unreadable. If a read of indispensable objects fails, such as the machines, readFacts returns the error.
func (x *migrateCommand) readFacts(ctx context.Context) (takeover.Facts, error) {
	if err := x.scopeFlags.Complete(); err != nil {
		return takeover.Facts{}, err
	}
	f := takeover.Facts{Now: x.Now(), Namespace: x.Namespace, RunsAsMCM: x.actsAsMCM}
	clients, err := x.NewClients(x.ClusterAccess)
	if err != nil {
		return f, err
	}
	served, err := clients.MachineClient.Discovery().ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if err != nil {
		return f, fmt.Errorf("ask the API server for the kinds of %s: %w", v1alpha1.GroupName, err)
	}
	for _, kind := range []string{"machinedrainrules", "rolloutpolicies"} {
		if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == kind }) {
			f.MissingKinds = append(f.MissingKinds, kind)
		}
	}
	o, err := x.readObjects(ctx, clients, !slices.Contains(f.MissingKinds, "rolloutpolicies"))
	if err != nil {
		return f, err
	}
	if err := x.addNodes(ctx, clients, &o); err != nil {
		return f, err
	}
	f.Leases = x.readMCMLeases(ctx, clients, x.Namespace, &f)
	x.addMCMDeployment(ctx, clients, &f)
	if !x.allNamespaces { // otherwise the other namespaces are checked, too
		x.addOtherNamespaces(ctx, clients, &f)
	}
	o.addFacts(&f)
	o.addSecretsOfOtherNamespaces(ctx, clients, &f)
	if len(f.MissingKinds) == 0 { // if a kind is missing, the CRDs are MCM's, which accept everything
		o.dryRunTemplates(ctx, clients, &f)
	}
	return f, nil
}

// readObjects reads the objects of the namespace.
func (x *migrateCommand) readObjects(
	ctx context.Context,
	clients kubecli.Clients,
	policies bool,
) (namespaceObjects, error) {
	o := namespaceObjects{
		now:       x.Now(),
		actsAsMCM: x.actsAsMCM,
		classes:   map[string]*v1alpha1.MachineClass{},
		nodes:     map[string]*corev1.Node{},
	}
	in := clients.MachineClient.MachineV1alpha1()
	classes, err := in.MachineClasses(x.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list MachineClasses: %w", err)
	}
	for _, c := range cache.PointersToItems(classes.Items) {
		o.classes[c.Name] = c
	}
	deployments, err := in.MachineDeployments(x.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list MachineDeployments: %w", err)
	}
	sets, err := in.MachineSets(x.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list MachineSets: %w", err)
	}
	machines, err := in.Machines(x.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list Machines: %w", err)
	}
	o.deployments, o.sets, o.machines = pointersSortedByName(
		deployments.Items,
	), pointersSortedByName(
		sets.Items,
	), pointersSortedByName(
		machines.Items,
	)
	if policies {
		list, err := in.RolloutPolicies(x.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return o, fmt.Errorf("list RolloutPolicies: %w", err)
		}
		o.policies = cache.PointersToItems(list.Items)
	}
	return o, nil
}

// pointersSortedByName returns pointers to objects, sorted by name.
func pointersSortedByName[T any, P interface {
	*T
	metav1.Object
}](items []T) []P {
	var sorted []P
	for i := range items {
		sorted = append(sorted, P(&items[i]))
	}
	slices.SortFunc(sorted, func(a, b P) int { return strings.Compare(a.GetName(), b.GetName()) })
	return sorted
}

// addNodes reads the nodes of the target cluster.
func (x *migrateCommand) addNodes(ctx context.Context, clients kubecli.Clients, o *namespaceObjects) error {
	nodes, err := x.targetNodesGetter(ctx, clients)
	if errors.Is(err, target.ErrNoCluster) {
		o.hasNoNodes = true
		return nil
	}
	if err != nil {
		return err
	}
	list, err := nodes.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf(
			"list nodes of namespace %s (--target-kubeconfig or --target-secret names their cluster): %w", x.Namespace, err,
		)
	}
	for i := range list.Items {
		o.nodes[list.Items[i].Name] = &list.Items[i]
	}
	return nil
}

// targetNodesGetter returns the client of the nodes; target.ErrNoCluster if the machines join no cluster.
func (x *migrateCommand) targetNodesGetter(
	ctx context.Context,
	clients kubecli.Clients,
) (typedcorev1.NodesGetter, error) {
	switch {
	case x.targetFlags.HasTargetPerNamespace():
		client, err := x.targetFlags.NewClientFactory(clients.Core, process.NewKubernetesClient).Client(ctx, x.Namespace)
		if err != nil {
			return nil, err //nolint:wrapcheck // the error names the namespace
		}
		return client.CoreV1(), nil
	case x.targetKubeconfig == "":
		return clients.Core, nil
	case x.targetKubeconfig == noTargetCluster:
		return nil, target.ErrNoCluster
	default:
		of, err := x.NewClients(kubecli.ClusterAccess{Kubeconfig: x.targetKubeconfig})
		return of.Core, err
	}
}

// readMCMLeases returns the Leases of MCM's processes in a namespace.
func (x *migrateCommand) readMCMLeases(
	ctx context.Context,
	clients kubecli.Clients,
	namespace string,
	f *takeover.Facts,
) (all []takeover.Lease) {
	for _, name := range cache.MCMLeaseNames() {
		lease, err := clients.Leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			f.UnreadableObjects = append(f.UnreadableObjects, kubecli.CollapseSpaces(err.Error()))
		case lease.Spec.RenewTime != nil && lease.Spec.HolderIdentity != nil && lease.Spec.LeaseDurationSeconds != nil:
			all = append(all, takeover.Lease{
				Name: name, Holder: *lease.Spec.HolderIdentity, RenewedAt: lease.Spec.RenewTime.Time,
				Duration: time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second,
			})
		}
	}
	return all
}

// addOtherNamespaces adds the other namespaces with Machines, and whether MCM is active there.
func (x *migrateCommand) addOtherNamespaces(ctx context.Context, clients kubecli.Clients, f *takeover.Facts) {
	machines := map[string]int{}
	err := cache.VisitMachines(
		ctx,
		clients.MachineClient,
		metav1.NamespaceAll,
		func(m *v1alpha1.Machine) { machines[m.Namespace]++ },
	)
	if err != nil {
		f.UnreadableObjects = append(
			f.UnreadableObjects,
			kubecli.CollapseSpaces("list the Machines of all namespaces: "+err.Error()),
		)
		return
	}
	delete(machines, x.Namespace)
	for _, namespace := range slices.Sorted(maps.Keys(machines)) {
		if x.isInScope(ctx, clients, namespace, f) {
			f.OtherNamespaces = append(f.OtherNamespaces, takeover.OtherNamespace{
				Namespace: namespace, MachineCount: machines[namespace], Leases: x.readMCMLeases(ctx, clients, namespace, f),
			})
		}
	}
}

// isInScope reports whether worker and bridge will act in a namespace; true if the labels of the namespace cannot be
// read.
func (x *migrateCommand) isInScope(
	ctx context.Context,
	clients kubecli.Clients,
	namespace string,
	f *takeover.Facts,
) bool {
	if x.scopeFlags.Selector == nil {
		return x.scopeFlags.ContainsNamespace(namespace, nil)
	}
	o, err := clients.Core.Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		f.UnreadableObjects = append(
			f.UnreadableObjects,
			kubecli.CollapseSpaces("read the labels of namespace "+namespace+": "+err.Error()),
		)
		return true
	}
	return x.scopeFlags.ContainsNamespace(namespace, labels.Set(o.Labels))
}

// addMCMDeployment reads the Deployment of MCM. A Deployment with MCM's name and Millwright's label is skipped: this
// Deployment runs `millwright heartbeats` for Gardener's autoscaler.
func (x *migrateCommand) addMCMDeployment(ctx context.Context, clients kubecli.Clients, f *takeover.Facts) {
	d, err := clients.Apps.Deployments(x.Namespace).Get(ctx, mcmDeploymentName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		f.UnreadableObjects = append(f.UnreadableObjects, kubecli.CollapseSpaces(err.Error()))
	case d.Labels["app.kubernetes.io/part-of"] != "millwright":
		wanted := int32(1) // Kubernetes' default
		if d.Spec.Replicas != nil {
			wanted = *d.Spec.Replicas
		}
		f.MCMControllers = append(
			f.MCMControllers,
			takeover.MCMController{Name: d.Name, Replicas: int(max(wanted, d.Status.Replicas))},
		)
	}
}

// addSecretsOfOtherNamespaces reads the Secrets in other namespaces to which classes refer, and uses only the
// annotation of each Secret.
func (o namespaceObjects) addSecretsOfOtherNamespaces(ctx context.Context, clients kubecli.Clients, f *takeover.Facts) {
	for i := range f.Classes {
		of := o.classes[f.Classes[i].Name]
		if of == nil {
			continue
		}
		for _, key := range class.SecretKeysOfOtherNamespaces(of) {
			l := takeover.CrossNamespaceSecret{Namespace: key.Namespace, Name: key.Name}
			secret, err := clients.Core.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			if err != nil {
				l.ReadError = kubecli.CollapseSpaces(err.Error())
			} else {
				l.AllowsUse = class.SecretAllowsNamespace(secret, of.Namespace)
				l.AllowedNamespaces = secret.Annotations[v1alpha1.AnnotationAllowedClassNamespaces]
			}
			f.Classes[i].CrossNamespaceSecrets = append(f.Classes[i].CrossNamespaceSecrets, l)
		}
	}
}

// dryRunTemplates checks by dry runs whether the API server accepts machines of the templates of deployments and sets.
// Deployments come first. A set of a deployment is tried only if the deployment's template was accepted and the set has
// replicas.
func (o namespaceObjects) dryRunTemplates(ctx context.Context, clients kubecli.Clients, f *takeover.Facts) {
	refused := map[types.UID]bool{}
	try := func(kind string, owner metav1.Object, template *v1alpha1.MachineTemplateSpec) {
		m := &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Name: cmp.Or(
					owner.GetName(),
					kind,
				) + "-check",
				Namespace:   owner.GetNamespace(),
				Labels:      template.Labels,
				Annotations: template.Annotations,
			},
			Spec: template.Spec,
		}
		_, err := clients.MachineClient.MachineV1alpha1().
			Machines(m.Namespace).
			Create(ctx, m, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil || apierrors.IsAlreadyExists(err):
		case apierrors.IsInvalid(err):
			refused[owner.GetUID()] = true
			f.RejectedTemplates = append(
				f.RejectedTemplates,
				takeover.RejectedTemplate{Object: kind + "/" + owner.GetName(), Reason: kubecli.CollapseSpaces(err.Error())},
			)
		default:
			f.UnreadableObjects = append(
				f.UnreadableObjects,
				"try the template of "+owner.GetName()+": "+kubecli.CollapseSpaces(err.Error()),
			)
		}
	}
	for _, d := range o.deployments {
		try("machinedeployment", d, &d.Spec.Template)
	}
	for _, s := range o.sets {
		if owner := metav1.GetControllerOf(s); owner == nil || !refused[owner.UID] && s.Spec.Replicas > 0 {
			try("machineset", s, &s.Spec.Template)
		}
	}
}
