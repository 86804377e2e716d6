package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"millwright/api/v1alpha1"
	"millwright/observe/deployment"
	"millwright/starter/kubecli"
)

// pool is a deployment with its sets, machines, nodes and policy.
type pool struct {
	deployment *v1alpha1.MachineDeployment
	sets       []*v1alpha1.MachineSet
	machines   []*v1alpha1.Machine
	nodes      []runtime.Object
	policy     *v1alpha1.RolloutPolicy // nil if there is no policy
}

var webKey = types.NamespacedName{Namespace: "shop", Name: "web"}

type poolDeploymentEdit func(*v1alpha1.MachineDeployment)

// webPool returns deployment shop/web with three replicas and maxSurge 1. The rollout of shop/web last made progress 15
// minutes ago.
func webPool(edits ...poolDeploymentEdit) *pool {
	d := &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "shop",
			Name:            "web",
			UID:             "d-1",
			ResourceVersion: "9",
			Annotations:     map[string]string{},
		},
		Spec: v1alpha1.MachineDeploymentSpec{
			Replicas: 3,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "large"}},
			},
		},
		Status: v1alpha1.MachineDeploymentStatus{
			Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
			Conditions: []v1alpha1.MachineDeploymentCondition{
				{
					Type:           v1alpha1.MachineDeploymentProgressing,
					Status:         v1alpha1.ConditionTrue,
					Reason:         "MachineSetUpdated",
					LastUpdateTime: metav1.NewTime(beginTime),
				},
			},
		},
	}
	for _, e := range edits {
		e(d)
	}
	return &pool{deployment: d}
}

// addPolicy adds a policy to the pool. The recorded rollout began with the steps of this policy.
func (p *pool) addPolicy(spec v1alpha1.RolloutPolicySpec) *pool {
	p.policy = &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "careful"}, Spec: spec}
	p.deployment.Status.Rollout.Steps = spec.Steps
	return p
}

// addSet adds a set whose status shows its wanted size. A set with the deployment's class is the current set.
func (p *pool) addSet(name string, revision int, class string, replicas int32) *pool {
	template := *p.deployment.Spec.Template.DeepCopy()
	template.Spec.Class.Name = class
	template.Labels[v1alpha1.LabelMachineTemplateHash] = name
	s := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "shop",
			Name:              name,
			UID:               types.UID("u-" + name),
			CreationTimestamp: metav1.NewTime(beginTime.Add(time.Duration(revision-7) * time.Hour)),
			Labels:            maps.Clone(template.Labels),
			Annotations:       map[string]string{v1alpha1.AnnotationRevision: fmt.Sprint(revision)},
			OwnerReferences: []metav1.OwnerReference{
				{
					APIVersion: v1alpha1.SchemeGroupVersion.String(),
					Kind:       "MachineDeployment",
					Name:       "web",
					UID:        p.deployment.UID,
					Controller: new(true),
				},
			},
		},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: replicas, Template: template,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelMachineTemplateHash: name}},
		},
		Status: v1alpha1.MachineSetStatus{ObservedReplicas: replicas},
	}
	if class == p.deployment.Spec.Template.Spec.Class.Name {
		deployment.CopyDeploymentFields(s, p.deployment)
		p.deployment.Annotations[v1alpha1.AnnotationRevision] = fmt.Sprint(revision)
		if p.deployment.Status.Rollout == nil {
			p.deployment.Status.Rollout = &v1alpha1.RolloutStatus{Revision: int64(revision), Set: name}
		}
	}
	p.sets = append(p.sets, s)
	return p
}

// addMachine adds a machine to the last set. By default, the machine entered its phase at the time of the rollout's
// last progress.
func (p *pool) addMachine(name string, phase v1alpha1.MachinePhase, edits ...machineEdit) *pool {
	s := p.sets[len(p.sets)-1]
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "shop",
			Name:              name,
			UID:               types.UID("u-" + name),
			CreationTimestamp: metav1.NewTime(beginTime),
			Annotations:       map[string]string{},
			Labels:            map[string]string{v1alpha1.LabelNode: "n-" + name, v1alpha1.LabelMachineTemplateHash: s.Name},
			OwnerReferences: []metav1.OwnerReference{
				{
					APIVersion: v1alpha1.SchemeGroupVersion.String(),
					Kind:       "MachineSet",
					Name:       s.Name,
					UID:        s.UID,
					Controller: new(true),
				},
			},
		},
		Status: v1alpha1.MachineStatus{
			CurrentStatus: v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.NewTime(beginTime)},
		},
	}
	if phase == v1alpha1.MachineTerminating {
		m.DeletionTimestamp, m.Finalizers = new(metav1.NewTime(beginTime)), []string{v1alpha1.FinalizerMachine}
	}
	for _, e := range edits {
		e(m)
	}
	p.machines = append(p.machines, m)
	s.Status.Replicas++
	return p
}

// addRunningMachines adds available machines to the last set.
func (p *pool) addRunningMachines(names ...string) *pool {
	for _, name := range names {
		p.addMachine(name, v1alpha1.MachineRunning)
	}
	return p
}

// addInstance gives a machine an instance.
func (p *pool) addInstance(machine string) *pool {
	for _, m := range p.machines {
		if m.Name == machine {
			m.Spec.ProviderID = "fake:///" + machine
		}
	}
	return p
}

func withOperationText(text string) machineEdit {
	return func(m *v1alpha1.Machine) { m.Status.LastOperation.Description = text }
}

// waitingPool returns a rollout that waits for one machine to become available and for a second machine to be deleted.
func waitingPool(edits ...poolDeploymentEdit) *pool {
	return webPool(edits...).
		addSet("web-a", 6, "small", 1).
		addRunningMachines("a-1").addMachine("a-2", v1alpha1.MachineTerminating, withOperationText("Drain: 2 pods left")).
		addSet("web-b", 7, "large", 2).
		addRunningMachines("b-1").
		addMachine("b-2", v1alpha1.MachinePending, withOperationText("Creating the instance:\nno capacity"))
}

// completedPool returns a complete rollout. The oldest set of the deployment, web-0, has no replicas.
func completedPool(edits ...poolDeploymentEdit) *pool {
	return webPool(
		edits...).addSet("web-0", 5, "tiny", 0).
		addSet("web-a", 6, "small", 0).
		addSet("web-b", 7, "large", 3).
		addRunningMachines("b-1", "b-2", "b-3")
}

func (p *pool) newBackend() *fakeBackend {
	objects := []runtime.Object{p.deployment}
	if p.policy != nil {
		objects = append(objects, p.policy)
	}
	for _, s := range p.sets {
		objects = append(objects, s)
	}
	for _, m := range p.machines {
		objects = append(objects, m)
	}
	return newFakeBackend(objects...)
}

// newSnapshot returns the snapshot of the pool.
func (p *pool) newSnapshot() snapshot {
	return newSnapshot(
		millwrightDeployment{
			ObjectTree: deployment.ObjectTree{Deployment: p.deployment, Sets: p.sets, Members: p.machines, Policy: p.policy},
		},
		now,
	)
}

// runCommand runs a rollout command.
func (p *pool) runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return runCommandWithNodes(t.Context(), p.newBackend(), p.nodes, args...)
}

func runCommandWithNodes(ctx context.Context, w *fakeBackend, nodes []runtime.Object, args ...string) (string, error) {
	var out bytes.Buffer
	d := w.Environment()
	d.NewClients = func(a kubecli.ClusterAccess) (kubecli.Clients, error) {
		if a.Kubeconfig == "other.yaml" {
			return kubecli.Clients{}, errors.New("read kubeconfig " + a.Kubeconfig)
		}
		return kubecli.Clients{MachineClient: w.MachineClient, Core: kubefake.NewClientset(nodes...).CoreV1()}, nil
	}
	c := Command(d)
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

func TestParseDeploymentName(t *testing.T) {
	for _, args := range [][]string{{"shop/web"}, {"web", "-n", "shop"}, {"web", "--namespace=shop"}, {"shop/web", "-n", "shop"}, {"mcd", "web", "-n", "shop"}, {"mcd/web", "-n", "shop"}, {"machinedeployment", "shop/web"}, {"machinedeployments.machine.sapcloud.io", "shop/web"}} {
		out, err := completedPool().runCommand(t, append([]string{"status"}, args...)...)
		require.NoError(t, err)
		assert.Contains(t, out, "shop/web: revision 7 is complete.\n", args)
	}
	for args, message := range map[string]string{
		"status web":                   "there is no deployment default/web",
		"status wbe -n shop":           "there is no deployment shop/wbe; did you mean web?",
		"status web -n shpo":           "there is no deployment shpo/web; there is one in namespace shop",
		"status mc web -n shop":        `"mc web" names a machine, and no deployment`,
		"status mdc web -n shop":       `unknown kind "mdc": use mcd; did you mean mcd?`,
		"history shop/":                `"shop/" names no deployment: give NAME or NAMESPACE/NAME`,
		"plan a/b/c":                   `unknown kind "a": use mcd`,
		"watch shop/web -n other":      "shop/web is in namespace shop, but --namespace says other",
		"status":                       "accepts between 1 and 2 arg",
		"watch shop/web --interval 0s": "--interval 0s is not positive",
		"status shop/web --target-kubeconfig=other.yaml": "read kubeconfig other.yaml",
	} {
		_, err := completedPool().runCommand(t, strings.Fields(args)...)
		assert.ErrorContains(t, err, message, args)
	}
}

func TestEveryRolloutCommandHasHelp(t *testing.T) {
	f := &rolloutCommand{}
	for _, c := range []*cobra.Command{f.statusCommand(), f.watchCommand(), f.historyCommand(), f.planCommand()} {
		assert.NotEmpty(t, c.Short, c.Name())
		assert.NotEmpty(t, c.Long, c.Name())
		assert.NotEmpty(t, c.Example, c.Name())
	}
}

func TestReadSnapshotReadsOwnedObjects(t *testing.T) {
	p := completedPool()
	stranger := completedPool().sets[2]
	stranger.Name, stranger.UID, stranger.OwnerReferences[0].UID = "web-z", "u-z", "another"
	alone := completedPool().machines[0]
	alone.Name, alone.UID, alone.OwnerReferences = "z-1", "u-z-1", nil
	foreign := completedPool().machines[0]
	foreign.Name, foreign.UID, foreign.OwnerReferences[0].UID = "z-2", "u-z-2", "u-z"
	p.sets, p.machines = append(p.sets, stranger), append(p.machines, alone, foreign)
	s, err := deploymentReader{
		key:     webKey,
		clients: kubecli.Clients{MachineClient: p.newBackend().MachineClient},
		now:     p.newBackend().Environment().Now,
	}.readSnapshot(t.Context())
	require.NoError(t, err)
	require.Len(t, s.tree.Sets, 3)
	assert.Equal(
		t,
		[]string{"web-0", "web-a", "web-b"},
		[]string{s.facts.Sets[0].Name, s.facts.Sets[1].Name, s.facts.Sets[2].Name},
		"the oldest first",
	)
	assert.Len(t, s.tree.Machines, 3)
	assert.Equal(t, 2, s.currentSetIndex())
	assert.True(t, s.decision.Complete)
}

func TestReadSnapshotErrors(t *testing.T) {
	for what, message := range map[string]string{
		"machinedeployments": "get deployment shop/web: forbidden",
		"machinesets":        "list sets of deployment shop/web: forbidden",
		"machines":           "list machines: forbidden",
	} {
		w := completedPool().newBackend()
		w.MachineClient.PrependReactor("*", what, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("forbidden")
		})
		_, err := runCommandWithNodes(t.Context(), w, nil, "status", "shop/web")
		assert.EqualError(t, err, message)
	}
	nodes := kubefake.NewClientset()
	nodes.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	_, err := deploymentReader{
		key:     webKey,
		clients: kubecli.Clients{MachineClient: completedPool().newBackend().MachineClient},
		nodes:   nodes.CoreV1(),
		now:     time.Now,
	}.readSnapshot(t.Context())
	assert.EqualError(t, err, "list nodes: forbidden")
}

// withInPlaceStrategy sets the strategy InPlaceUpdate with this orchestration type.
func withInPlaceStrategy(kind v1alpha1.OrchestrationType) poolDeploymentEdit {
	return func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type:          v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
			InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{OrchestrationType: kind},
		}
		d.Spec.Strategy.InPlaceUpdate.MaxUnavailable = new(intstr.FromInt32(1))
		d.Spec.Strategy.InPlaceUpdate.MaxSurge = new(intstr.FromInt32(0))
	}
}

// inPlacePool returns an in-place update of three machines: one machine has moved to the new set, and the node of a
// second machine is selected.
func inPlacePool(kind v1alpha1.OrchestrationType) *pool {
	p := webPool(withInPlaceStrategy(kind)).addSet("web-a", 6, "small", 2).
		addRunningMachines("a-1", "a-2").
		addSet("web-b", 7, "large", 1).
		addRunningMachines("b-1")
	p.sets[0].Labels[v1alpha1.LabelScaleUpDisabled] = v1alpha1.ValueLowerTrue
	for _, m := range p.machines {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Labels[v1alpha1.LabelNode], Labels: map[string]string{}}}
		if m.Name != "b-1" {
			n.Labels[v1alpha1.LabelCandidateForUpdate] = v1alpha1.ValueLowerTrue
		}
		if m.Name == "a-1" {
			n.Labels[v1alpha1.LabelSelectedForUpdate] = v1alpha1.ValueLowerTrue
		}
		p.nodes = append(p.nodes, n)
	}
	return p
}

func TestNodesAreReadOnlyWithTargetKubeconfig(t *testing.T) {
	p := inPlacePool(v1alpha1.OrchestrationTypeAuto)
	out, err := p.runCommand(t, "status", "shop/web", "--target-kubeconfig=nodes.yaml")
	require.NoError(t, err)
	assert.Contains(t, out, "shop/web: revision 7 waits: 1 machine being updated in place.\n")
	assert.Contains(t, out, "\na-1       Running   15m     -\n", "it is what the rollout waits for")
	assert.NotContains(t, out, "not read")
	out, err = p.runCommand(t, "status", "shop/web")
	require.NoError(t, err)
	assert.Contains(t, out, "\nnodes      not read (--target-kubeconfig): what is updated in place is not known\n")
	out, err = completedPool().runCommand(t, "status", "shop/web")
	require.NoError(t, err)
	assert.NotContains(t, out, "not read", "nodes are not needed")
}
