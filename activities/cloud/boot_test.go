package cloud_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/provider"
)

const userDataTemplate = "#!/bin/sh\nNAME=<<MACHINE_NAME>>\njoin --token <<BOOTSTRAP_TOKEN>>\n"

// newBootstrapWorld returns a provider's worker whose class has this user data and a token. newBootstrapWorld also
// returns the call that creates an instance.
func newBootstrapWorld(
	t *testing.T,
	data map[string]string,
	tokens ...runtime.Object,
) (*activitiestest.CloudWorld, cloud.InstanceCall) {
	t.Helper()
	o := activitiestest.NewCloudWorld(t, activitiestest.NewClassWithSecrets("a", ""), activitiestest.NewSecret("a", data))
	o.TargetClient = cloud.SingleTargetClientFunc(kubefake.NewClientset(tokens...))
	in := activitiestest.DefaultInstanceCall
	in.Token = newTokenRef()
	return o, in
}

func TestAnInstanceIsStartedWithItsUserData(t *testing.T) {
	t.Parallel()
	started := func(name, token string) string {
		return strings.NewReplacer("<<MACHINE_NAME>>", name, "<<BOOTSTRAP_TOKEN>>", token).Replace(userDataTemplate)
	}
	t.Run("with its token and its name", func(t *testing.T) {
		o, in := newBootstrapWorld(
			t,
			map[string]string{"userData": userDataTemplate, "region": "eu"},
			activitiestest.NewTokenSecret(),
		)
		for range 2 {
			_, err := o.RunActivity(o.CreateInstance, in)
			require.NoError(t, err)
			got := o.Cloud.Classes[len(o.Cloud.Classes)-1].Secret
			assert.Equal(t, started("m", expectedBootstrapToken()), string(got["userData"]))
			assert.Equal(t, "eu", string(got["region"]))
			assert.Len(t, got, 2, "the provider gets what is in the Secrets, and nothing besides")
		}
		assert.Equal(t, started("m", expectedBootstrapToken()), string(o.Cloud.UserData("uid-m")))
	})
	t.Run("without a target there is no token", func(t *testing.T) {
		o, in := newBootstrapWorld(t, map[string]string{"userData": userDataTemplate})
		o.TargetClient, in.Token = nil, kube.TokenRef{}
		_, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		assert.Equal(t, started("m", "<<BOOTSTRAP_TOKEN>>"), string(o.Cloud.UserData("uid-m")))
	})
	t.Run("no key: only people can mend that", func(t *testing.T) {
		o, in := newBootstrapWorld(
			t,
			map[string]string{"token": activitiestest.SecretMarker},
			activitiestest.NewTokenSecret(),
		)
		answer, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		assert.Equal(t, cloud.InstanceAnswer{Problem: &kube.Problem{
			Reason:  "SecretInvalid",
			Message: "the Secret of MachineClass small has no key userData",
			React:   kube.ReactionUntilCredentialChange,
		}}, answer)
		assert.Empty(t, o.Cloud.Machines, "the cloud is not asked")
	})
	t.Run("a class without secretRef says nothing of how its instances are started", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(
			t,
			activitiestest.NewClassWithSecrets("", "b"),
			activitiestest.NewSecret("b", map[string]string{"region": "eu"}),
		)
		target := kubefake.NewClientset()
		o.TargetClient = cloud.SingleTargetClientFunc(target)
		in := activitiestest.DefaultInstanceCall
		in.Token = newTokenRef() // an earlier version of the class needed the token; the call does not read the token
		_, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		assert.Equal(t, provider.Secret{"region": []byte("eu")}, o.Cloud.Classes[0].Secret)
		assert.Empty(t, target.Actions())
	})
	t.Run("a token that has expired starts nothing", func(t *testing.T) {
		expired := activitiestest.NewTokenSecret(func(s *corev1.Secret) {
			s.Data["expiration"] = []byte(time.Now().Add(-time.Second).Format(time.RFC3339))
		})
		o, in := newBootstrapWorld(t, map[string]string{"userData": userDataTemplate}, expired)
		answer, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		require.NotNil(t, answer.Problem)
		assert.Equal(t, kube.ReasonTokenGone, answer.Problem.Reason)
		assert.Empty(t, o.Cloud.Machines)
	})
	t.Run("a token that stays away is backed off from", func(t *testing.T) {
		o, in := newBootstrapWorld(t, map[string]string{"userData": userDataTemplate})
		o.TargetClient = cloud.SingleTargetClientFunc(kubefake.NewClientset())
		in.Known = &kube.Problem{Reason: kube.ReasonTokenGone, Message: "it is gone", React: kube.ReactionRetry, Failures: 1}
		_, took, err := o.RunActivityWithRetries(o.CreateInstance, in)
		require.Error(t, err)
		assert.Greater(t, took, 30*time.Second, "six attempts, further and further apart")
		assert.Empty(t, o.Cloud.Machines)
	})
}

func TestOnlyCreateInstanceNeedsUserData(t *testing.T) {
	t.Parallel()
	o, in := newBootstrapWorld(t, map[string]string{"region": "eu"})
	o.TargetClient = nil
	for name, step := range map[string]any{"InitializeInstance": o.InitializeInstance, "InstanceStatus": o.InstanceStatus, "DeleteInstance": o.DeleteInstance} {
		t.Run(name, func(t *testing.T) {
			before := len(o.Cloud.Classes)
			answer, err := o.RunActivity(step, in)
			require.NoError(t, err)
			assert.True(t, answer.Problem == nil || answer.Problem.Reason == "NotFound", "%+v", answer.Problem)
			require.Greater(t, len(o.Cloud.Classes), before, "the cloud is asked")
			assert.Equal(t, provider.Secret{"region": []byte("eu")}, o.Cloud.Classes[before].Secret)
		})
	}
}

func TestRotatedSecretIsUsedByNextCall(t *testing.T) {
	t.Parallel()
	o := activitiestest.NewCloudWorld(
		t,
		activitiestest.NewClassWithSecrets("a", ""),
		activitiestest.NewSecret("a", map[string]string{"userData": "boot", "key": "old"}),
	)
	o.Cloud.FailCalls(provider.MethodCreateInstance, 1, provider.Errorf(provider.PermissionDenied, "403"))
	answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	assert.Equal(t, kube.ReactionUntilCredentialChange, answer.Problem.React, "to ask again with the same key cannot help")

	_, err = o.Secrets.CoreV1().
		Secrets(activitiestest.TestNamespace).
		Update(t.Context(), activitiestest.NewSecret("a", map[string]string{"userData": "boot", "key": "new"}), metav1.UpdateOptions{})
	require.NoError(t, err)
	answer, err = o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
	require.NoError(t, err)
	want := firstInstanceAnswer()
	want.Tokenless = answer.Tokenless
	assert.Equal(t, want, answer)
	assert.Equal(
		t,
		[]string{"old", "new"},
		[]string{string(o.Cloud.Classes[0].Secret["key"]), string(o.Cloud.Classes[1].Secret["key"])},
	)
}

func TestAnswersAndErrorsContainNoToken(t *testing.T) {
	t.Parallel()
	half := string(activitiestest.NewTokenSecret().Data["token-secret"])
	for name, message := range map[string]string{
		"the token":                     "token " + expectedBootstrapToken() + " is refused",
		"half of it":                    "token abc..." + half,
		"a line of the user data":       "user data, line 3: join --token " + expectedBootstrapToken(),
		"all of the user data":          "invalid: #!/bin/sh\nNAME=m\njoin --token " + expectedBootstrapToken() + "\n",
		"the user data, and then again": "invalid: #!/bin/sh\nNAME=m\njoin --token " + expectedBootstrapToken() + "\n, near " + expectedBootstrapToken() + "," + half,
		"far behind":                    strings.Repeat("x", 980) + expectedBootstrapToken(), // the message is cut inside the token
	} {
		for _, code := range []provider.Code{provider.InvalidArgument, provider.Unavailable} {
			t.Run(name+", "+code.String(), func(t *testing.T) {
				o, in := newBootstrapWorld(t, map[string]string{"userData": userDataTemplate}, activitiestest.NewTokenSecret())
				o.Cloud.CreateFunc = func(context.Context) (provider.Instance, error) {
					return provider.Instance{}, provider.Errorf(code, "%s", message)
				}
				answer, err := o.RunActivity(o.CreateInstance, in)
				require.NoError(t, err)
				require.NotNil(t, answer.Problem)
				assert.Contains(t, answer.Problem.Message, "[redacted")
				assertNoToken(t, answer, nil)

				in.Known = &kube.Problem{Reason: "Unavailable", React: kube.ReactionRetry, Failures: 1}
				answer, _, err = o.RunActivityWithRetries(o.CreateInstance, in)
				assertNoToken(t, answer, err)
				require.Contains(t, string(o.Cloud.Classes[0].Secret["userData"]), expectedBootstrapToken(), "the provider has it")
			})
		}
	}
	t.Run("nor does one in an answer that is none", func(t *testing.T) {
		o, in := newBootstrapWorld(t, map[string]string{"userData": userDataTemplate}, activitiestest.NewTokenSecret())
		answer, err := o.RunActivity(o.CreateInstance, in)
		require.NoError(t, err)
		assertNoToken(t, answer, nil)
	})
}

// assertNoToken asserts that neither the answer nor the failure contains ten or more letters of the token's secret
// half.
func assertNoToken(t *testing.T, answer cloud.InstanceAnswer, err error) {
	t.Helper()
	text, encodeErr := json.Marshal(answer)
	require.NoError(t, encodeErr)
	if err != nil {
		text = append(text, err.Error()...)
		text = append(text, temporal.GetDefaultFailureConverter().ErrorToFailure(err).String()...)
	}
	assert.NotContains(t, string(text), string(activitiestest.NewTokenSecret().Data["token-secret"])[:10])
}
