package cloud_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/api/vocabulary"
	observeclass "millwright/observe/class"
	"millwright/provider"
)

// expectedBootstrapToken is the token that an instance presents if the instance boots with NewTokenSecret.
func expectedBootstrapToken() string {
	s := activitiestest.NewTokenSecret()
	return string(s.Data["token-id"]) + "." + string(s.Data["token-secret"])
}

func newTokenRef() kube.TokenRef {
	return kube.TokenRef{Namespace: activitiestest.TokenNamespace, Name: activitiestest.NewTokenSecret().Name}
}

// renderTestUserData renders the user data of the class small with the token of NewTokenSecret.
func renderTestUserData(t *testing.T, secret provider.Secret, ref kube.TokenRef) (string, *kube.Problem, error) {
	t.Helper()
	p := &cloud.Activities{
		TargetClient: cloud.SingleTargetClientFunc(kubefake.NewClientset(activitiestest.NewTokenSecret())),
	}
	data, problem, err := cloud.InstanceUserData(
		t.Context(),
		p,
		provider.Class{Namespace: activitiestest.TestNamespace, Name: "small", Secret: secret},
		"web-1",
		ref,
	)
	return string(data), problem, err
}

func TestBootstrapTokenInUserData(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ data, want string }{
		"token replaced":             {"a <<BOOTSTRAP_TOKEN>> b <<BOOTSTRAP_TOKEN>>", "a " + expectedBootstrapToken() + " b " + expectedBootstrapToken()},
		"token replaced, encoded":    {"a=%3C%3CBOOTSTRAP_TOKEN%3E%3E&b=%3C%3CBOOTSTRAP_TOKEN%3E%3E", "a=" + expectedBootstrapToken() + "&b=" + expectedBootstrapToken()},
		"token replaced, small hex":  {"a=%3c%3cBOOTSTRAP_TOKEN%3e%3e", "a=" + expectedBootstrapToken()},
		"token replaced, both forms": {"<<BOOTSTRAP_TOKEN>> %3C%3CBOOTSTRAP_TOKEN%3E%3E", expectedBootstrapToken() + " " + expectedBootstrapToken()},
		"no placeholder":             {"#cloud-config <BOOTSTRAP_TOKEN> \xff\x00", "#cloud-config <BOOTSTRAP_TOKEN> \xff\x00"},
		"an empty value":             {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem, err := renderTestUserData(t, provider.Secret{"userData": []byte(row.data)}, newTokenRef())
			require.NoError(t, err)
			assert.Nil(t, problem)
			assert.Equal(t, row.want, got)
		})
	}
	t.Run("no key", func(t *testing.T) { assertMissingUserDataIsProblem(t, newTokenRef()) })
	t.Run("no target", func(t *testing.T) {
		p := &cloud.Activities{}
		data := "<<BOOTSTRAP_TOKEN>> %3C%3CBOOTSTRAP_TOKEN%3E%3E %3c%3cBOOTSTRAP_TOKEN%3e%3e"
		got, problem, err := cloud.InstanceUserData(
			t.Context(),
			p,
			provider.Class{Secret: provider.Secret{"userData": []byte(data)}},
			"m",
			kube.TokenRef{},
		)
		require.NoError(t, err)
		assert.Nil(t, problem)
		assert.Equal(t, data, string(got))
	})
}

func TestMachineNameInUserData(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ data, want string }{
		"machine name replaced":            {"<<MACHINE_NAME>>, <<MACHINE_NAME>>", "web-1, web-1"},
		"machine name replaced, encoded":   {"h=%3C%3CMACHINE_NAME%3E%3E&i=%3C%3CMACHINE_NAME%3E%3E", "h=web-1&i=web-1"},
		"machine name replaced, small hex": {"h=%3c%3cMACHINE_NAME%3e%3e", "h=web-1"},
		"both, and the token":              {"<<MACHINE_NAME>> %3C%3CMACHINE_NAME%3E%3E <<BOOTSTRAP_TOKEN>>", "web-1 web-1 " + expectedBootstrapToken()},
		"none":                             {"<MACHINE_NAME> MACHINE_NAME", "<MACHINE_NAME> MACHINE_NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			got, problem, err := renderTestUserData(t, provider.Secret{"userData": []byte(row.data)}, newTokenRef())
			require.NoError(t, err)
			assert.Nil(t, problem)
			assert.Equal(t, row.want, got)
		})
	}
	t.Run("no key", func(t *testing.T) { assertMissingUserDataIsProblem(t, kube.TokenRef{}) })
}

// assertMissingUserDataIsProblem asserts that a Secret without user data, or no Secret, is a problem for people.
func assertMissingUserDataIsProblem(t *testing.T, token kube.TokenRef) {
	t.Helper()
	for _, secret := range []provider.Secret{nil, {"token": []byte(activitiestest.SecretMarker)}} {
		data, problem, err := renderTestUserData(t, secret, token)
		require.NoError(t, err)
		assert.Empty(t, data)
		assert.Equal(t, &kube.Problem{
			Reason:  "SecretInvalid",
			React:   kube.ReactionUntilCredentialChange,
			Message: "the Secret of MachineClass small has no key userData",
		}, problem)
	}
}

func TestRenderUserDataDoesNotChangeSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"<<MACHINE_NAME>> <<BOOTSTRAP_TOKEN>>", "nothing to replace"} {
		data := []byte(text)
		before := slices.Clone(data)
		got := cloud.RenderUserData(data, "m", "t")
		assert.Equal(t, before, data)
		got[0] = '!'
		assert.Equal(t, before, data, "nor does the result share its bytes")
	}
}

func TestEncodedPlaceholderGetsEncodedToken(t *testing.T) {
	t.Parallel()
	data := []byte("<<MACHINE_NAME>> %3C%3CMACHINE_NAME%3E%3E <<BOOTSTRAP_TOKEN>> %3c%3cBOOTSTRAP_TOKEN%3e%3e")
	assert.Equal(t, "a&b a%26b c/d c%2Fd", string(cloud.RenderUserData(data, "a&b", "c/d")))
}

func TestUnusableTokenIsProblem(t *testing.T) {
	t.Parallel()
	where := activitiestest.TokenNamespace + "/" + activitiestest.NewTokenSecret().Name
	class := provider.Class{
		Name:   "small",
		Secret: provider.Secret{"userData": []byte(activitiestest.SecretMarker + " <<BOOTSTRAP_TOKEN>>")},
	}
	for name, row := range map[string]struct {
		change func(*corev1.Secret)
		want   string
	}{
		"it was removed": {func(s *corev1.Secret) { s.Name = "other" }, "bootstrap token " + where + " does not exist any more"},
		"it has expired": {func(s *corev1.Secret) {
			s.Data["expiration"] = []byte(time.Now().Add(-time.Second).Format(time.RFC3339))
		}, "bootstrap token " + where + " has expired or was changed"},
		"it is some other Secret":   {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, "bootstrap token " + where + " has expired or was changed"},
		"the API server is away":    {nil, "get secret " + where + ": away"},
		"the worker has no cluster": {nil, "read bootstrap token " + where + ": this worker has no access to a target cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			s := activitiestest.NewTokenSecret()
			if row.change != nil {
				row.change(s)
			}
			tokens := kubefake.NewClientset(s)
			p := &cloud.Activities{TargetClient: cloud.SingleTargetClientFunc(tokens)}
			switch name {
			case "the API server is away":
				activitiestest.FailRequests(tokens, "get", "secrets", 1, apierrors.NewServiceUnavailable("away"), nil)
			case "the worker has no cluster":
				p.TargetClient = nil
			}
			data, problem, err := cloud.InstanceUserData(t.Context(), p, class, "m", newTokenRef())
			if row.change != nil { // for a changed token, the workflow makes a new token; other errors are retried
				require.NoError(t, err)
				require.Equal(
					t,
					&kube.Problem{Reason: kube.ReasonTokenGone, Message: row.want, React: kube.ReactionRetry, Failures: 1},
					problem,
				)
				assert.Empty(t, data)
				return
			}
			require.EqualError(t, err, row.want)
			assert.NotErrorAs(t, err, new(*temporal.ApplicationError), "a plain error is retried")
			assert.Nil(t, problem)
			assert.Empty(t, data)
			assert.NotContains(t, err.Error(), string(s.Data["token-secret"]))
			assertNoSecret(t, cloud.InstanceAnswer{}, err)
		})
	}
}

func TestUserDataWithoutTokenPlaceholder(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		data      string
		tokenless bool
	}{
		"no placeholder":           {"#cloud-config <BOOTSTRAP_TOKEN> <<MACHINE_NAME>>", true},
		"empty":                    {"", true},
		"plain":                    {"a <<BOOTSTRAP_TOKEN>>", false},
		"encoded":                  {"a=%3C%3CBOOTSTRAP_TOKEN%3E%3E", false},
		"encoded, in small digits": {"a=%3c%3cBOOTSTRAP_TOKEN%3e%3e", false},
	} {
		t.Run(name, func(t *testing.T) {
			class := activitiestest.NewClassWithSecrets("b", "")
			secret := activitiestest.NewSecret("b", map[string]string{"userData": row.data})
			o := activitiestest.NewCloudWorld(t, class, secret)
			in := activitiestest.DefaultInstanceCall
			answer, err := o.RunActivity(o.CreateInstance, in)
			require.NoError(t, err)
			require.Nil(t, answer.Problem)
			if !row.tokenless {
				assert.Empty(t, answer.Tokenless)
				made := len(o.Cloud.Machines)
				in.Tokenless = true
				_, err = o.RunActivity(o.CreateInstance, in)
				activitiestest.AssertFailure(t, err, kube.FailureTypeConflict, false)
				assert.Len(t, o.Cloud.Machines, made, "no instance is made that cannot join")
				return
			}
			assert.Equal(
				t,
				observeclass.VersionText(class)+observeclass.VersionText(secret),
				answer.Tokenless,
				"at these versions",
			)
			in.Tokenless = true
			answer, err = o.RunActivity(o.CreateInstance, in)
			require.NoError(t, err)
			assert.NotEmpty(t, answer.Tokenless)
		})
	}
	t.Run("a class that boots nothing says nothing", func(t *testing.T) {
		o := activitiestest.NewCloudWorld(
			t,
			activitiestest.NewClassWithSecrets("", "b"),
			activitiestest.NewSecret("b", map[string]string{"token": "t"}),
		)
		answer, err := o.RunActivity(o.CreateInstance, activitiestest.DefaultInstanceCall)
		require.NoError(t, err)
		assert.Empty(t, answer.Tokenless)
	})
}

// A target cluster that does not answer must not occupy a slot of the worker until the activity's timeout.
func TestReadOfATokenFromAHangingTargetEndsSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ string) (kubernetes.Interface, error) {
			<-ctx.Done() // the fake client does not obey a context
			return nil, ctx.Err()
		}
		p, class := &cloud.Activities{TargetClient: hangs}, provider.Class{Secret: provider.Secret{"userData": []byte("x")}}
		begun := time.Now()
		data, problem, err := cloud.InstanceUserData(t.Context(), p, class, "m", newTokenRef())
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, time.Since(begun))
		assert.Empty(t, data)
		assert.Equal(t, &kube.Problem{
			Reason: vocabulary.BlockedByUnavailableTarget,
			Message: "the target cluster of namespace shop did not answer the read of bootstrap token " +
				activitiestest.TokenNamespace + "/" + activitiestest.NewTokenSecret().Name + " within 10s",
			React:    kube.ReactionRetry,
			Failures: 1,
		}, problem)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, problem, err = cloud.InstanceUserData(ctx, p, class, "m", newTokenRef())
		require.ErrorIs(t, err, context.DeadlineExceeded, "the activity itself has ended")
		assert.Nil(t, problem)
	})
}
