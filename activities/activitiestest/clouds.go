package activitiestest

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
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	activitiescloud "millwright/activities/cloud"
	"millwright/activities/kube"
	machinefake "millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/provider"
	"millwright/provider/fake"
)

// recordingCloud is a provider that records the calls of the embedded fake provider.
type recordingCloud struct {
	*fake.Provider
	Classes    []provider.Class
	Machines   []provider.Machine
	CreateFunc func(context.Context) (provider.Instance, error) // replaces CreateInstance of the fake provider if set
}

func (c *recordingCloud) recordCall(class provider.Class, machine provider.Machine) {
	c.Classes, c.Machines = append(c.Classes, class), append(c.Machines, machine)
}

func (c *recordingCloud) CreateInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	c.recordCall(class, machine)
	if c.CreateFunc != nil {
		return c.CreateFunc(ctx)
	}
	return c.Provider.CreateInstance(ctx, class, machine)
}

func (c *recordingCloud) InitializeInstance(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	c.recordCall(class, machine)
	return c.Provider.InitializeInstance(ctx, class, machine)
}

func (c *recordingCloud) DeleteInstance(ctx context.Context, class provider.Class, machine provider.Machine) error {
	c.recordCall(class, machine)
	return c.Provider.DeleteInstance(ctx, class, machine)
}

func (c *recordingCloud) InstanceStatus(
	ctx context.Context,
	class provider.Class,
	machine provider.Machine,
) (provider.Instance, error) {
	c.recordCall(class, machine)
	return c.Provider.InstanceStatus(ctx, class, machine)
}

// CloudWorld holds the provider activities, their cloud, and the API server with classes and Secrets.
type CloudWorld struct {
	t     *testing.T
	Cloud *recordingCloud
	*activitiescloud.Activities
}

func NewCloudWorld(t *testing.T, mc *v1alpha1.MachineClass, secrets ...runtime.Object) *CloudWorld {
	t.Helper()
	o := &CloudWorld{t: t, Cloud: &recordingCloud{Provider: fake.New(fake.WithInitializeStep("shop/slow"))}}
	o.Activities = &activitiescloud.Activities{
		Cloud:   o.Cloud,
		Classes: machinefake.NewSimpleClientset(mc),
		Secrets: kubefake.NewClientset(secrets...),
		Cluster: "prod",
	}
	return o
}

// RunActivity runs an activity once.
func (o *CloudWorld) RunActivity(
	activity any,
	in activitiescloud.InstanceCall,
) (activitiescloud.InstanceAnswer, error) {
	o.t.Helper()
	return ExecuteActivity[activitiescloud.InstanceAnswer](
		o.t,
		activity,
		in,
		(*testsuite.TestActivityEnvironment).ExecuteActivity,
	)
}

// RunActivityWithRetries runs an activity with the retry policy of its workflow, in simulated time, and returns the
// simulated duration.
func (o *CloudWorld) RunActivityWithRetries(
	activity any,
	in activitiescloud.InstanceCall,
) (answer activitiescloud.InstanceAnswer, took time.Duration, err error) {
	o.t.Helper()
	env := NewWorkflowEnvironment()
	env.RegisterActivity(o.Activities)
	begun := env.Now()
	env.ExecuteWorkflow(func(ctx workflow.Context) (activitiescloud.InstanceAnswer, error) {
		var answer activitiescloud.InstanceAnswer
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: time.Minute,
			RetryPolicy: &temporal.RetryPolicy{
				InitialInterval:    2 * time.Second,
				BackoffCoefficient: 1,
				MaximumAttempts:    6,
			},
		}), activity, in).Get(ctx, &answer)
		return answer, err
	})
	took = env.Now().Sub(begun)
	if err = env.GetWorkflowError(); err == nil {
		require.NoError(o.t, env.GetWorkflowResult(&answer))
	}
	return answer, took, err
}

var DefaultInstanceCall = activitiescloud.InstanceCall{
	Machine:    kube.Ref{Namespace: TestNamespace, Name: "m", UID: "uid-m"},
	Class:      "small",
	NeverTried: true,
	IntentRun:  "default-test-run-id",
}

func NewSecret(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: TestNamespace, Name: name}, Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

func NewSecretRef(namespace, name string) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: namespace, Name: name}
}

// MeasureBackOff runs CreateInstance for a machine whose status already shows the problem, and returns the delay
// before the next retry.
func (o *CloudWorld) MeasureBackOff(known kube.Problem) time.Duration {
	o.t.Helper()
	in := DefaultInstanceCall
	in.Known = &known
	_, err := o.RunActivity(o.CreateInstance, in)
	var failed *temporal.ApplicationError
	require.ErrorAs(o.t, err, &failed)
	assert.Equal(o.t, known.Reason, failed.Type(), "so that an operator sees what it waits for")
	return failed.NextRetryDelay()
}

// RunActivityWithTimeout runs an activity whose context ends after limit, like a timeout in Temporal, and returns the
// activity's duration.
func (o *CloudWorld) RunActivityWithTimeout(step any, limit time.Duration) (took time.Duration, err error) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), limit)
	defer cancel()
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(o.Activities)
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	begun := time.Now()
	_, err = env.ExecuteActivity(step, DefaultInstanceCall)
	return time.Since(begun), err
}

// SecretMarker is a value in every Secret of the tests, and must not appear anywhere else.
const SecretMarker = "canary-4711-do-not-tell"

func NewClassWithSecrets(userData, credentials string) *v1alpha1.MachineClass {
	return NewClass(func(c *v1alpha1.MachineClass) {
		if userData != "" {
			c.SecretRef = NewSecretRef(TestNamespace, userData)
		}
		if credentials != "" {
			c.CredentialsSecretRef = NewSecretRef(TestNamespace, credentials)
		}
	})
}
