package cloud_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	"millwright/provider"
)

// The tests of this file cover requirements of MCM's drivers that Millwright's own drivers do not have.

func TestProviderNameKeepsItsCase(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Provider = "AWS" }))
	_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	assert.Equal(t, "AWS", o.Cloud.Classes[0].Provider)
}

func TestNodeTemplateAnnotationsReachTheProvider(t *testing.T) {
	t.Parallel()
	wishes := map[string]string{"machine.sapcloud.io/awsPlacement": "{}"}
	for name, row := range map[string]struct {
		reads bool
		uid   string
		want  map[string]string
	}{
		"for a provider that reads them":  {true, "uid-m", wishes},
		"of another machine of this name": {true, "uid-other", nil},
		"for other providers":             {false, "uid-m", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			o.NodeTemplates = row.reads
			m := &v1alpha1.Machine{
				ObjectMeta: metav1.ObjectMeta{Namespace: activitiestest.TestNamespace, Name: "m", UID: "uid-m"},
			}
			m.Spec.NodeTemplateSpec.Annotations = wishes
			_, err := o.Classes.MachineV1alpha1().Machines(m.Namespace).Create(t.Context(), m, metav1.CreateOptions{})
			require.NoError(t, err)
			in := activitiestest.DefaultInstanceCall
			in.Machine.UID = row.uid
			_, err = o.RunActivity(o.CreateInstance, in)
			require.NoError(t, err)
			assert.Equal(t, row.want, o.Cloud.Machines[0].NodeAnnotations)
		})
	}
}

// A worker without the right to get Machines creates no instance, and reports the missing right.
func TestMissingPermissionToGetMachinesIsReported(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"no right": {apierrors.NewForbidden(machinesResource(), "m", errors.New("no get")), "forbidden: no get"},
		"no CRD":   {apierrors.NewGenericServerResponse(http.StatusNotFound, "get", machinesResource(), "m", "404 page not found", 0, true), "could not find the requested resource"},
	} {
		t.Run(name, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
			o.NodeTemplates = true
			activitiestest.FailRequests(o.Classes.(activitiestest.FakeClient), "get", "machines", -1, row.err, nil)
			answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
			require.NoError(t, err)
			assert.Equal(t, "Unavailable", answer.Problem.Reason)
			assert.Contains(t, answer.Problem.Message, row.want)
			assert.Empty(t, o.Cloud.Machines)
		})
	}
}

// If a provider's refusal sets RetryAfter, the create call is repeated after RetryAfter until the creation timeout.
func TestRefusalWithRetryAfterIsRetried(t *testing.T) {
	t.Parallel()
	refused := provider.Errorf(provider.InvalidArgument, "no such profile")
	refused.RetryAfter = 3 * time.Minute
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	o.Cloud.FailCalls(provider.MethodCreateInstance, 2, refused)
	answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	assert.Equal(
		t,
		kube.Problem{
			Reason:   "InvalidArgument",
			Message:  "no such profile",
			React:    kube.ReactionRetry,
			After:    3 * time.Minute,
			Failures: 1,
		},
		*answer.Problem,
	)
	in := activitiestest.DefaultInstanceCall
	in.Known = answer.Problem
	answer, took, err := o.RunActivityWithRetries(o.CreateInstance, in)
	require.NoError(t, err)
	assert.Equal(t, firstInstanceAnswer(), answer)
	assert.Equal(t, 6*time.Minute, took.Truncate(time.Second))

	t.Run("but in the deletion of a machine that nobody tried", func(t *testing.T) {
		o.Cloud.FailCalls(provider.MethodDeleteInstance, 1, refused)
		answer, err := o.RunActivity(o.DeleteInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Equal(t, kube.ReactionUntilSpecChange, answer.Problem.React)
	})
}

// A creation in steps continues from the last recorded step.
func TestAFailureWithANewStateIsReturned(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
	step := 0
	o.Cloud.CreateFunc = func(context.Context) (provider.Instance, error) {
		step++
		state := []string{"", "disk", "disk", "disk and interface"}[step]
		return provider.Instance{LastKnownState: state}, provider.Errorf(provider.Internal, "no")
	}
	answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	assert.Equal(t, "disk", answer.LastKnownState)
	in := activitiestest.DefaultInstanceCall
	in.Known, in.LastKnownState = answer.Problem, answer.LastKnownState
	answer, _, err = o.RunActivityWithRetries(o.CreateInstance, in)
	require.NoError(t, err)
	assert.Equal(t, "disk and interface", answer.LastKnownState)
	assert.Equal(t, 3, answer.Problem.Failures)
}
