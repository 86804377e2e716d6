package activities_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/activities"
	machinefake "millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/provider"
	"millwright/provider/fake"
)

// cloud is a provider that writes down what it was asked, in front of another one.
type cloud struct {
	*fake.Provider
	classes  []provider.Class
	machines []provider.Machine
	create   func(context.Context) (provider.Instance, error) // in place of the other one's
}

func (c *cloud) note(class provider.Class, machine provider.Machine) {
	c.classes, c.machines = append(c.classes, class), append(c.machines, machine)
}

func (c *cloud) CreateInstance(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
	c.note(class, machine)
	if c.create != nil {
		return c.create(ctx)
	}
	return c.Provider.CreateInstance(ctx, class, machine)
}

func (c *cloud) InitializeInstance(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
	c.note(class, machine)
	return c.Provider.InitializeInstance(ctx, class, machine)
}

func (c *cloud) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	c.note(class, machine)
	return c.Provider.DeleteInstance(ctx, class, machine)
}

func (c *cloud) InstanceStatus(ctx context.Context, class provider.Class, machine provider.Machine) (provider.Instance, error) {
	c.note(class, machine)
	return c.Provider.InstanceStatus(ctx, class, machine)
}

// office holds the provider activities, their cloud, and the API server with classes and Secrets.
type office struct {
	t     *testing.T
	cloud *cloud
	*activities.Provider
}

func newOffice(t *testing.T, mc *v1alpha1.MachineClass, secrets ...runtime.Object) *office {
	t.Helper()
	o := &office{t: t, cloud: &cloud{Provider: fake.New(fake.WithInitialize("shop/slow"))}}
	o.Provider = &activities.Provider{
		Cloud: o.cloud, Classes: machinefake.NewSimpleClientset(mc), Secrets: kubefake.NewClientset(secrets...), Cluster: "prod",
	}
	return o
}

// ask runs an activity once.
func (o *office) ask(activity any, in activities.InstanceCall) (activities.InstanceAnswer, error) {
	o.t.Helper()
	return execute[activities.InstanceAnswer](o.t, o.Provider, activity, in, (*testsuite.TestActivityEnvironment).ExecuteActivity)
}

// patiently runs an activity with the retries that a workflow gives it, in no time, and says how long it would have taken.
func (o *office) patiently(activity any, in activities.InstanceCall) (answer activities.InstanceAnswer, took time.Duration, err error) {
	o.t.Helper()
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterActivity(o.Provider)
	begun := env.Now()
	env.ExecuteWorkflow(func(ctx workflow.Context) (activities.InstanceAnswer, error) {
		var answer activities.InstanceAnswer
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Minute,
			RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 2 * time.Second, BackoffCoefficient: 1, MaximumAttempts: 6},
		}), activity, in).Get(ctx, &answer)
		return answer, err
	})
	took = env.Now().Sub(begun)
	if err = env.GetWorkflowError(); err == nil {
		require.NoError(o.t, env.GetWorkflowResult(&answer))
	}
	return answer, took, err
}

var instanceCall = activities.InstanceCall{Machine: activities.Ref{Namespace: shop, Name: "m", UID: "uid-m"}, Class: "small", NeverTried: true}

func secret(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func secretRef(namespace, name string) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: namespace, Name: name}
}

// instanceOne is the answer to a call that finds or makes the first instance of the cloud.
func instanceOne() activities.InstanceAnswer {
	return activities.InstanceAnswer{
		ProviderID: "fake:///i-1", NodeName: "m", LastKnownState: "i-1", Addresses: []activities.Address{{Type: "Hostname", Address: "m"}},
	}
}

func TestCreateInstance(t *testing.T) {
	t.Parallel()
	o := newOffice(t, class())
	for range 2 {
		answer, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		assert.Equal(t, instanceOne(), answer)
	}
	assert.Equal(t, 1, o.cloud.Creates(), "U67: the second adopts what the first made")
	assert.JSONEq(t, `{"size":"xl"}`, string(o.cloud.classes[0].Spec))
	assert.Equal(t, provider.Machine{Cluster: "prod", Namespace: shop, Name: "m", UID: "uid-m", NeverTried: true}, o.cloud.machines[0])

	t.Run("what is known goes along", func(t *testing.T) {
		in := instanceCall
		in.ProviderID, in.LastKnownState = "fake:///i-1", "i-1"
		_, err := o.ask(o.CreateInstance, in)
		require.NoError(t, err)
		last := o.cloud.machines[len(o.cloud.machines)-1]
		assert.Equal(t, []string{"fake:///i-1", "i-1"}, []string{last.ProviderID, last.LastKnownState})
	})
}

func TestNeverTriedHoldsForTheFirstAttemptOnly(t *testing.T) {
	t.Parallel()
	t.Run("when the first attempt failed somewhere", func(t *testing.T) {
		o := newOffice(t, class())
		calls := 0
		o.cloud.create = func(context.Context) (provider.Instance, error) {
			if calls++; calls == 1 {
				return provider.Instance{}, temporal.NewApplicationError("the worker died", "Died")
			}
			return provider.Instance{ProviderID: "fake:///i-1", NodeName: "m"}, nil
		}
		_, _, err := o.patiently(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		require.Len(t, o.cloud.machines, 2)
		assert.True(t, o.cloud.machines[0].NeverTried)
		assert.False(t, o.cloud.machines[1].NeverTried)
	})
	t.Run("when it was not the first from the start", func(t *testing.T) {
		o := newOffice(t, class())
		in := instanceCall
		in.NeverTried = false
		_, err := o.ask(o.CreateInstance, in)
		require.NoError(t, err)
		assert.False(t, o.cloud.machines[0].NeverTried)
	})
}

func TestAnInstanceWithoutANameIsAnInternalError(t *testing.T) {
	t.Parallel()
	for name, unnamed := range map[string]provider.Instance{"no provider ID": {NodeName: "m"}, "no node name": {ProviderID: "fake:///i-1"}} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t, class())
			o.cloud.create = func(context.Context) (provider.Instance, error) { return unnamed, nil }
			answer, err := o.ask(o.CreateInstance, instanceCall)
			require.NoError(t, err)
			require.NotNil(t, answer.Problem)
			assert.Equal(t, "Internal", answer.Problem.Reason)
			assert.Empty(t, answer.ProviderID)
		})
	}
}

func TestInitializeInstance(t *testing.T) {
	t.Parallel()
	slow := class(func(c *v1alpha1.MachineClass) { c.Name = "slow" })
	in := instanceCall
	in.Class = "slow"
	t.Run("of a provider that has this step", func(t *testing.T) {
		o := newOffice(t, slow)
		answer, err := o.ask(o.CreateInstance, in)
		require.NoError(t, err)
		assert.True(t, answer.Uninitialized)
		for range 2 {
			answer, err = o.ask(o.InitializeInstance, in)
			require.NoError(t, err)
			assert.Equal(t, instanceOne(), answer)
		}
	})
	t.Run("U68: that fails is a problem", func(t *testing.T) {
		o := newOffice(t, slow)
		answer, err := o.ask(o.InitializeInstance, in)
		require.NoError(t, err)
		assert.Equal(t, "NotFound", answer.Problem.Reason)
	})
	t.Run("of a provider without it is a success that forgets nothing", func(t *testing.T) {
		o := newOffice(t, class())
		_, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		in := instanceCall
		in.ProviderID, in.NodeName, in.LastKnownState = "fake:///i-1", "m", "i-1"
		for range 2 {
			answer, err := o.ask(o.InitializeInstance, in)
			require.NoError(t, err)
			assert.Equal(t, activities.InstanceAnswer{ProviderID: "fake:///i-1", NodeName: "m", LastKnownState: "i-1"}, answer)
		}
	})
}
