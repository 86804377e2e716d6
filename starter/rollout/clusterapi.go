package rollout

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/api/v1alpha1"
	"millwright/decide/request"
	"millwright/decide/rollout"
	"millwright/observe/capi"
	"millwright/observe/capi/deployment"
	capiset "millwright/observe/capi/set"
	"millwright/starter/kubecli"
)

// clusterAPI is a deployment of Cluster API that Millwright reconciles.
type clusterAPI struct{ deployment.Tree }

// readClusterAPI reads a deployment of Cluster API with its sets and machines. Meant is true if the user named the API
// group: then a deployment that does not exist or that Millwright does not reconcile is an error. Otherwise it is nil
// without an error.
func (l reader) readClusterAPI(ctx context.Context, meant bool) (source, error) {
	if served, err := l.clients.ClusterAPI.ServedIf(meant); err != nil || !served {
		return nil, err
	}
	client := l.clients.ClusterAPI.Client()
	d, err := kubecli.Find(ctx, request.MachineDeployment, l.key, client.Deployments(l.key.Namespace).Get)
	switch {
	case apierrors.IsNotFound(err) && !meant:
		return nil, nil
	case err != nil:
		return nil, err
	case !capi.Lost(d) && !meant:
		return nil, nil
	case !capi.Lost(d):
		return nil, fmt.Errorf(
			"deployment %s has no finalizer %s, so Millwright does not roll it out; its label %s is %q",
			l.key,
			capi.Finalizer,
			clusterv1.WatchLabel,
			d.Labels[clusterv1.WatchLabel],
		)
	}
	filter := d.Labels[clusterv1.WatchLabel] // the worker's filter: it sets the finalizer on objects with this label
	f, err := deployment.ReadAlone(ctx, capi.NewReader(client, capi.Settings{Filter: filter}), d)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(f.Sets, func(a, b *clusterv1.MachineSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.Members, func(a, b *clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return clusterAPI{f}, nil
}

func (f clusterAPI) shown(now time.Time) tree {
	group := "." + clusterv1.GroupVersion.Group
	d := f.Deployment
	shown := tree{
		object:    d,
		kind:      "machinedeployment" + group,
		arg:       "machinedeployment" + group + "/" + kubecli.KeyOf(d),
		resource:  "machinedeployments" + group,
		machines:  "machines" + group,
		from:      "template",
		leaving:   "millwright top -n " + d.Namespace,
		strategy:  cmp.Or(string(d.Spec.Rollout.Strategy.Type), string(clusterv1.RollingUpdateMachineDeploymentStrategyType)),
		operation: deployment.Moves(d),
		policy:    f.Policy,
	}
	for _, s := range f.Sets {
		shown.Sets = append(shown.Sets, set{
			s.Name,
			s.Spec.Template.Spec.InfrastructureRef.Name,
			s.CreationTimestamp.Time,
			capi.Value(s.Spec.Replicas),
			s.Annotations[v1alpha1.AnnotationChangeCause],
		})
	}
	for _, m := range f.Members {
		shown.Members = append(shown.Members, clusterAPIMember(m, now))
	}
	return shown
}

func clusterAPIMember(m *clusterv1.Machine, now time.Time) member {
	of := member{
		name:     m.Name,
		uid:      string(m.UID),
		node:     m.Status.NodeRef.Name,
		phase:    cmp.Or(m.Status.Phase, "new"),
		since:    m.CreationTimestamp.Time,
		deleting: m.DeletionTimestamp != nil,
		look:     fmt.Sprintf("millwright explain machine.cluster.x-k8s.io/%s", kubecli.KeyOf(m)),
	}
	if o := capiset.MachineOperation(m, now); o != nil {
		of.operation = o.Cause
	}
	if m.Status.LastUpdated.After(of.since) {
		of.since = m.Status.LastUpdated.Time
	}
	if m.DeletionTimestamp != nil {
		of.since = m.DeletionTimestamp.Time
	}
	return of
}

func (f clusterAPI) observed(now time.Time) rollout.Observed { return deployment.Observed(f.Tree, now) }

func (f clusterAPI) request(o rollout.Observed, next rollout.Decision) request.DeploymentFacts {
	return deployment.Request(f.Tree, o, next)
}

// template is the template of a set as in the deployment: without the label that distinguishes sets.
func (f clusterAPI) template(set int) any {
	t := f.Sets[set].Spec.Template.DeepCopy()
	delete(t.Labels, clusterv1.MachineDeploymentUniqueLabel)
	return t
}

func (f clusterAPI) under(policy *v1alpha1.RolloutPolicy) source {
	f.Policy = policy
	return f
}

// with returns the deployment as it would be after a change.
func (f clusterAPI) with(change func(d *clusterv1.MachineDeployment)) clusterAPI {
	f.Deployment = f.Deployment.DeepCopy()
	change(f.Deployment)
	return f
}

func (f clusterAPI) sized(replicas int32) source {
	return f.with(func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = &replicas })
}

func (f clusterAPI) applied(file string) (source, error) {
	found, sized, err := readDeployment(file, f.Deployment, clusterv1.GroupVersion)
	if err != nil {
		return nil, err
	}
	if !sized {
		found.Spec.Replicas = f.Deployment.Spec.Replicas
	}
	return f.with(func(d *clusterv1.MachineDeployment) { found.Spec.DeepCopyInto(&d.Spec) }), nil
}

func (f clusterAPI) running() source {
	return f.with(func(d *clusterv1.MachineDeployment) {
		d.Spec.Paused = nil
		delete(d.Annotations, v1alpha1.AnnotationRolloutHold)
	})
}

func (f clusterAPI) returned(set int, now time.Time) source {
	return f.with(func(d *clusterv1.MachineDeployment) {
		delete(d.Annotations, v1alpha1.AnnotationRollbackTo)
		if set >= 0 {
			deployment.ReturnTo(d, f.Sets[set], false, now)
		}
	})
}

func (f clusterAPI) patch(ctx context.Context, data []byte) error {
	d := f.Deployment
	_, err := f.API.Client().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

func (clusterAPI) change() func(request.Command, request.Decision) map[string]any {
	return deployment.RequestPatch
}
