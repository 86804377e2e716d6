package cloud_test

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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/api/v1alpha1"
	observeclass "millwright/observe/class"
	"millwright/provider"
)

func TestSecretsReachTheProvider(t *testing.T) {
	t.Parallel()
	a := activitiestest.NewSecret("a", map[string]string{"userData": "boot", "token": "a"})
	b := activitiestest.NewSecret("b", map[string]string{"token": "b", "region": "eu"})
	for name, row := range map[string]struct {
		class *v1alpha1.MachineClass
		want  map[string]string
	}{
		"none":                              {activitiestest.NewClass(), map[string]string{}},
		"user data alone":                   {activitiestest.NewClassWithSecrets("a", ""), map[string]string{"userData": "boot", "token": "a"}},
		"credentials alone":                 {activitiestest.NewClassWithSecrets("", "b"), map[string]string{"token": "b", "region": "eu"}},
		"both, of one key the credentials'": {activitiestest.NewClassWithSecrets("a", "b"), map[string]string{"userData": "boot", "token": "b", "region": "eu"}},
		"one for both":                      {activitiestest.NewClassWithSecrets("a", "a"), map[string]string{"userData": "boot", "token": "a"}},
		"without a namespace: the class's":  {activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.SecretRef = activitiestest.NewSecretRef("", "a") }), map[string]string{"userData": "boot", "token": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, row.class, a, b)
			_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
			require.NoError(t, err)
			got := map[string]string{}
			for key, value := range o.Cloud.Classes[0].Secret {
				got[key] = string(value)
			}
			assert.Equal(t, row.want, got)
		})
	}
}

func TestMissingClassOrSecretIsProblem(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		class           *v1alpha1.MachineClass
		reason, message string
	}{
		"the class":           {activitiestest.NewClass(func(c *v1alpha1.MachineClass) { c.Name = "other" }), "ClassNotFound", "MachineClass small does not exist in namespace shop"},
		"its Secret":          {activitiestest.NewClassWithSecrets("a", ""), "SecretNotFound", "Secret shop/a of MachineClass small does not exist"},
		"that of credentials": {activitiestest.NewClassWithSecrets("", "b"), "SecretNotFound", "Secret shop/b of MachineClass small does not exist"},
		"the name of its Secret": {activitiestest.NewClass(func(c *v1alpha1.MachineClass) {
			c.SecretRef = activitiestest.NewSecretRef(activitiestest.TestNamespace, "")
		}), "ClassInvalid", "MachineClass small refers to a Secret without a name"},
	} {
		t.Run(name, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(t, row.class)
			for _, step := range []any{o.CreateInstance, o.InitializeInstance, o.DeleteInstance} {
				for range 2 {
					answer, err := o.RunActivity(step, activitiestest.DefaultInstanceCall)
					require.NoError(t, err)
					assert.Equal(
						t,
						cloud.InstanceAnswer{
							Problem: &kube.Problem{Reason: row.reason, Message: row.message, React: kube.ReactionUntilCredentialChange},
						},
						answer,
					)
				}
			}
			assert.Empty(t, o.Cloud.Machines, "the cloud is not asked")
		})
	}
	t.Run("an API server that is away is no such problem", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(t, activitiestest.NewClass())
		activitiestest.FailRequests(
			o.Classes.(activitiestest.FakeClient),
			"get",
			"machineclasses",
			1,
			apierrors.NewServiceUnavailable("away"),
			nil,
		)
		_, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.Error(t, err)
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
	})
}

// secretOfOtherNamespace returns a Secret of another namespace with the annotation allowed-class-namespaces. If allows
// is empty, the Secret has no annotation.
func secretOfOtherNamespace(name, allows string) *corev1.Secret {
	s := activitiestest.NewSecret(name, map[string]string{"userData": "boot", "token": activitiestest.SecretMarker})
	s.Namespace = "credentials"
	if allows != "" {
		s.Annotations = map[string]string{"machine.sapcloud.io/allowed-class-namespaces": allows}
	}
	return s
}

// A class may use a Secret of another namespace only if the owner of the Secret allows the class's namespace.
func TestASecretOfAnotherNamespaceNeedsTheConsentOfItsOwner(t *testing.T) {
	t.Parallel()
	class := activitiestest.NewClass(func(c *v1alpha1.MachineClass) {
		c.SecretRef = activitiestest.NewSecretRef(activitiestest.TestNamespace, "a")
		c.CredentialsSecretRef = activitiestest.NewSecretRef("credentials", "account")
	})
	for name, row := range map[string]struct {
		allows  string
		unasked bool // the worker has the flag that allows all Secrets
		refused bool
	}{
		"no annotation":                     {"", false, true},
		"the namespace":                     {"shop", false, false},
		"one of several":                    {"bakery, shop", false, false},
		"others":                            {"bakery,shops,sho", false, true},
		"all":                               {"*", false, false},
		"a pattern is no namespace":         {"sh*", false, true},
		"an empty name":                     {",", false, true},
		"no annotation, and the flag":       {"", true, false},
		"its own namespace is not this one": {"credentials", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := activitiestest.NewSecret("a", map[string]string{"userData": "boot"})
			o := activitiestest.NewCloudWorld(t, class, a, secretOfOtherNamespace("account", row.allows))
			o.UnaskedSecrets = row.unasked
			for _, step := range []any{o.CreateInstance, o.DeleteInstance} {
				answer, err := o.RunActivity(step, activitiestest.DefaultInstanceCall)
				require.NoError(t, err)
				if !row.refused {
					assert.Nil(t, answer.Problem)
					continue
				}
				assert.Equal(t, cloud.InstanceAnswer{Problem: &kube.Problem{
					Reason: "SecretNotAllowed",
					Message: "Secret credentials/account does not allow MachineClass small of namespace shop to use it: " +
						"its owner has to add shop to its annotation machine.sapcloud.io/allowed-class-namespaces",
					React: kube.ReactionUntilCredentialChange,
				}}, answer)
				assert.Empty(t, o.Cloud.Classes, "the cloud is not asked")
				assertNoSecret(t, answer, err)
			}
		})
	}
}

// A call with cached versions of the class and its Secrets reads nothing. A changed annotation of a Secret also changes
// the Secret's version.
func TestRevokedSecretConsentAppliesToNextCall(t *testing.T) {
	t.Parallel()
	class := activitiestest.NewClass(func(c *v1alpha1.MachineClass) {
		c.SecretRef = activitiestest.NewSecretRef("credentials", "a")
	})
	secret := secretOfOtherNamespace("a", "shop")
	o := activitiestest.NewCloudWorld(t, class, secret)
	in := activitiestest.DefaultInstanceCall
	in.Versions = observeclass.VersionText(class) + observeclass.VersionText(secret)
	answer, err := o.RunActivity(o.CreateInstance, in)
	require.NoError(t, err)
	require.Nil(t, answer.Problem)

	secret = secretOfOtherNamespace("a", "")
	secret.ResourceVersion = "2"
	_, err = o.Secrets.CoreV1().Secrets("credentials").Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	in.Versions = observeclass.VersionText(class) + observeclass.VersionText(secret)
	answer, err = o.RunActivity(o.DeleteInstance, in)
	require.NoError(t, err)
	require.NotNil(t, answer.Problem)
	assert.Equal(t, "SecretNotAllowed", answer.Problem.Reason)
}

// assertNoSecret asserts that neither the answer nor the failure contains the canary, in any form that a history
// stores.
func assertNoSecret(t *testing.T, answer cloud.InstanceAnswer, err error) {
	t.Helper()
	text, encodeErr := json.Marshal(answer)
	require.NoError(t, encodeErr)
	if err != nil {
		text = append(text, err.Error()...)
		text = append(text, temporal.GetDefaultFailureConverter().ErrorToFailure(err).String()...)
	}
	for _, form := range []string{activitiestest.SecretMarker, base64.StdEncoding.EncodeToString([]byte(activitiestest.SecretMarker))} {
		assert.NotContains(t, string(text), form)
	}
}

func TestAnswersAndErrorsContainNoSecret(t *testing.T) {
	t.Parallel()
	leak := "token " + activitiestest.SecretMarker + " is not valid"
	known := activitiestest.DefaultInstanceCall
	known.Known = &kube.Problem{Reason: "Unavailable"}
	for name, fails := range map[string]error{
		"nothing fails":                 nil,
		"an error that quotes it":       provider.Errorf(provider.Unavailable, "%s", leak),
		"one that only people can mend": provider.Errorf(provider.InvalidArgument, "%s", leak),
		"a cause that quotes it":        &provider.Error{Code: provider.Unavailable, Message: "the cloud said no", Cause: errors.New(leak)},
		"an error of no known kind":     errors.New(leak),
		"one that is wrapped":           fmt.Errorf("%s: %w", leak, provider.Errorf(provider.Internal, "no")),
	} {
		t.Run(name, func(t *testing.T) {
			o := activitiestest.NewCloudWorld(
				t,
				activitiestest.NewClassWithSecrets("a", "a"),
				activitiestest.NewSecret(
					"a",
					map[string]string{"token": activitiestest.SecretMarker, "userData": "#!/bin/sh " + activitiestest.SecretMarker},
				),
			)
			o.Cloud.CreateFunc = func(context.Context) (provider.Instance, error) {
				return provider.Instance{ProviderID: "fake:///i-1", NodeName: "m"}, fails
			}
			answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
			assertNoSecret(t, answer, err)
			answer, _, err = o.RunActivityWithRetries(o.CreateInstance, known)
			assertNoSecret(t, answer, err)
			require.Contains(
				t,
				string(o.Cloud.Classes[0].Secret["userData"]),
				activitiestest.SecretMarker,
				"the provider has it",
			)
		})
	}
}

func TestALongCallSendsHeartbeatsAndCanBeCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := activitiestest.NewCloudWorld(
			t,
			activitiestest.NewClassWithSecrets("", "a"),
			activitiestest.NewSecret("a", map[string]string{"token": activitiestest.SecretMarker}),
		)
		var called, ended time.Time
		o.Cloud.CreateFunc = func(ctx context.Context) (provider.Instance, error) {
			called = time.Now()
			<-ctx.Done()
			ended = time.Now()
			return provider.Instance{}, fmt.Errorf("POST /instances?token=%s: %w", activitiestest.SecretMarker, ctx.Err())
		}
		suite := &testsuite.WorkflowTestSuite{}
		suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(o.Activities)
		ctx, cancel := context.WithCancel(t.Context())
		env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
		heartbeats := 0
		env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
			var detail cloud.AttemptDetail
			require.NoError(t, details.Get(&detail))
			detail.CreatesUntil = time.Time{}
			assert.Equal(t, cloud.AttemptDetail{Said: "the cloud was called"}, detail, "a heartbeat says nothing else")
			if heartbeats++; heartbeats == 2 { // the first heartbeat is sent before the call
				cancel() // the SDK cancels the context if a heartbeat's answer requests a cancellation
			}
		})
		_, err := env.ExecuteActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.Error(t, err)
		// The SDK's test environment sends a heartbeat every 30 s; Millwright's workers set the interval to
		// HeartbeatInterval.
		assert.Equal(t, 30*time.Second, ended.Sub(called), "the next heartbeat brings the cancellation")
		assertNoSecret(t, cloud.InstanceAnswer{}, err)
	})
}
