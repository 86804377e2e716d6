package activities_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/provider"
)

// canary stands in every Secret of these tests, and must stand nowhere else.
const canary = "canary-4711-do-not-tell"

func withSecrets(userData, credentials string) *v1alpha1.MachineClass {
	return class(func(c *v1alpha1.MachineClass) {
		if userData != "" {
			c.SecretRef = secretRef(shop, userData)
		}
		if credentials != "" {
			c.CredentialsSecretRef = secretRef(shop, credentials)
		}
	})
}

func TestSecretsReachTheProvider(t *testing.T) {
	t.Parallel()
	a := secret("a", map[string]string{"userData": "boot", "token": "a"})
	b := secret("b", map[string]string{"token": "b", "region": "eu"})
	for name, row := range map[string]struct {
		class *v1alpha1.MachineClass
		want  map[string]string
	}{
		"none":                              {class(), map[string]string{}},
		"user data alone":                   {withSecrets("a", ""), map[string]string{"userData": "boot", "token": "a"}},
		"credentials alone":                 {withSecrets("", "b"), map[string]string{"token": "b", "region": "eu"}},
		"both, of one key the credentials'": {withSecrets("a", "b"), map[string]string{"userData": "boot", "token": "b", "region": "eu"}},
		"one for both":                      {withSecrets("a", "a"), map[string]string{"userData": "boot", "token": "a"}},
		"without a namespace: the class's":  {class(func(c *v1alpha1.MachineClass) { c.SecretRef = secretRef("", "a") }), map[string]string{"userData": "boot", "token": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t, row.class, a, b)
			_, err := o.ask(o.CreateInstance, instanceCall)
			require.NoError(t, err)
			got := map[string]string{}
			for key, value := range o.cloud.classes[0].Secret {
				got[key] = string(value)
			}
			assert.Equal(t, row.want, got)
		})
	}
}

func TestWhatIsMissingIsAProblemForPeople(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		class           *v1alpha1.MachineClass
		reason, message string
	}{
		"the class":                {class(func(c *v1alpha1.MachineClass) { c.Name = "other" }), "ClassNotFound", "MachineClass small does not exist in namespace shop"},
		"D18: its Secret":          {withSecrets("a", ""), "SecretNotFound", "Secret shop/a of MachineClass small does not exist"},
		"D18: that of credentials": {withSecrets("", "b"), "SecretNotFound", "Secret shop/b of MachineClass small does not exist"},
		"the name of its Secret":   {class(func(c *v1alpha1.MachineClass) { c.SecretRef = secretRef(shop, "") }), "ClassInvalid", "MachineClass small refers to a Secret without saying its name"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t, row.class)
			for _, step := range []any{o.CreateInstance, o.InitializeInstance, o.DeleteInstance} {
				for range 2 {
					answer, err := o.ask(step, instanceCall)
					require.NoError(t, err)
					assert.Equal(t, activities.InstanceAnswer{Problem: &activities.Problem{Reason: row.reason, Message: row.message, React: activities.UntilCredential}}, answer)
				}
			}
			assert.Empty(t, o.cloud.machines, "the cloud is not asked")
		})
	}
	t.Run("an API server that is away is no such problem", func(t *testing.T) {
		o := newOffice(t, class())
		failing(o.Classes.(fakeClient), "get", "machineclasses", 1, apierrors.NewServiceUnavailable("away"), nil)
		_, err := o.ask(o.CreateInstance, instanceCall)
		require.Error(t, err)
		_, retryable := failure(t, err)
		assert.True(t, retryable)
	})
}

// assertSilent says that neither an answer nor a failure holds the canary, in any form that a history would keep.
func assertSilent(t *testing.T, answer activities.InstanceAnswer, err error) {
	t.Helper()
	text, encodeErr := json.Marshal(answer)
	require.NoError(t, encodeErr)
	if err != nil {
		text = append(text, err.Error()...)
		text = append(text, temporal.GetDefaultFailureConverter().ErrorToFailure(err).String()...)
	}
	for _, form := range []string{canary, base64.StdEncoding.EncodeToString([]byte(canary))} {
		assert.NotContains(t, string(text), form)
	}
}

func TestNoSecretLeavesAnActivity(t *testing.T) {
	t.Parallel()
	leak := "token " + canary + " is not valid"
	known := instanceCall
	known.Known = &activities.Problem{Reason: "Unavailable"}
	for name, fails := range map[string]error{
		"nothing fails":                 nil,
		"an error that quotes it":       provider.Errorf(provider.Unavailable, "%s", leak),
		"one that only people can mend": provider.Errorf(provider.InvalidArgument, "%s", leak),
		"a cause that quotes it":        &provider.Error{Code: provider.Unavailable, Message: "the cloud said no", Cause: errors.New(leak)},
		"an error of no known kind":     errors.New(leak),
		"one that is wrapped":           fmt.Errorf("%s: %w", leak, provider.Errorf(provider.Internal, "no")),
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t, withSecrets("a", "a"), secret("a", map[string]string{"token": canary, "userData": "#!/bin/sh " + canary}))
			o.cloud.create = func(context.Context) (provider.Instance, error) {
				return provider.Instance{ProviderID: "fake:///i-1", NodeName: "m"}, fails
			}
			answer, err := o.ask(o.CreateInstance, instanceCall)
			assertSilent(t, answer, err)
			answer, _, err = o.patiently(o.CreateInstance, known)
			assertSilent(t, answer, err)
			require.Contains(t, string(o.cloud.classes[0].Secret["userData"]), canary, "the provider has it")
		})
	}
}

func TestALongCallHeartbeatsAndCanBeCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, withSecrets("", "a"), secret("a", map[string]string{"token": canary}))
		var called, ended time.Time
		o.cloud.create = func(ctx context.Context) (provider.Instance, error) {
			called = time.Now()
			<-ctx.Done()
			ended = time.Now()
			return provider.Instance{}, fmt.Errorf("POST /instances?token=%s: %w", canary, ctx.Err())
		}
		suite := &testsuite.WorkflowTestSuite{}
		suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(o.Provider)
		ctx, cancel := context.WithCancel(t.Context())
		env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
		env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
			assert.False(t, details.HasValues(), "a heartbeat says nothing")
			cancel() // as the SDK does when a heartbeat is answered so
		})
		_, err := env.ExecuteActivity(o.CreateInstance, instanceCall)
		require.Error(t, err)
		assert.Equal(t, 3*time.Second, ended.Sub(called), "the first heartbeat brings the cancellation")
		assertSilent(t, activities.InstanceAnswer{}, err)
	})
}
