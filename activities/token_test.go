package activities_test

import (
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities"
	"millwright/api/v1alpha1"
	"millwright/observe"
)

const kubeSystem = "kube-system" // where bootstrap tokens are

var secretsGVR = corev1.SchemeGroupVersion.WithResource("secrets")

// soon is when the tokens of these tests expire; it has a fraction of a second, which their Secrets cannot hold.
func soon() time.Time { return time.Now().Truncate(time.Second).Add(20*time.Minute + time.Nanosecond) }

// issue makes a token, or finds it.
func (w *world) issue(m *v1alpha1.Machine, attempt string, expires time.Time) activities.TokenRef {
	w.t.Helper()
	ref, err := activities.IssueToken(w.Activities, w.t.Context(), m, attempt, expires)
	require.NoError(w.t, err)
	require.Equal(w.t, kubeSystem, ref.Namespace)
	return ref
}

// token returns the Secret of a token as the API server has it; nil when it is gone.
func (w *world) token(ref activities.TokenRef) *corev1.Secret {
	object, err := w.target.Tracker().Get(secretsGVR, ref.Namespace, ref.Name)
	if err != nil {
		return nil
	}
	return object.(*corev1.Secret)
}

// tokens returns the names of all Secrets in kube-system.
func (w *world) tokens() []string {
	w.t.Helper()
	list, err := w.target.CoreV1().Secrets(kubeSystem).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	names := []string{}
	for _, s := range list.Items {
		names = append(names, s.Name)
	}
	return names
}

// revoke removes the tokens of a machine, and does it again, as Temporal does when an answer is lost.
func (w *world) revoke(m *v1alpha1.Machine) {
	w.t.Helper()
	_, err := run[any](w, w.RevokeTokens, ref(m))
	require.NoError(w.t, err)
	left := w.tokens()
	w.forget()
	_, err = run[any](w, w.RevokeTokens, ref(m))
	require.NoError(w.t, err, "again")
	assert.Empty(w.t, w.writes(), "again")
	assert.Equal(w.t, left, w.tokens())
}

// alter changes a value in the Secret of a token.
func (w *world) alter(ref activities.TokenRef, key, value string) {
	w.server.change(w.target.Tracker(), secretsGVR, ref.Namespace, ref.Name,
		map[string]any{"data": map[string]any{key: base64.StdEncoding.EncodeToString([]byte(value))}})
}

// tokenSecret returns the Secret that the first attempt of machine m would make, as it may be found.
func tokenSecret(change ...func(*corev1.Secret)) *corev1.Secret {
	name := activities.TokenName("uid-m", "1", 0)
	s := &corev1.Secret{Type: corev1.SecretTypeBootstrapToken, ObjectMeta: metav1.ObjectMeta{
		Namespace: kubeSystem, Name: name, UID: "uid-of-token", ResourceVersion: "900",
		Labels: map[string]string{v1alpha1.LabelMachineUID: "uid-m"}, Annotations: map[string]string{v1alpha1.AnnotationAttempt: "1"},
	}}
	s.Data = map[string][]byte{
		"token-id":     []byte(strings.TrimPrefix(name, "bootstrap-token-")),
		"token-secret": []byte("0123456789abcdef"),
		"expiration":   []byte(time.Now().UTC().Add(time.Hour).Format(time.RFC3339)),
	}
	return with(s, change)
}

func TestABootstrapToken(t *testing.T) {
	t.Parallel()
	expires := time.Date(2100, 1, 2, 4, 4, 5, 6, time.FixedZone("east", 3600))
	for name, row := range map[string]struct {
		groups string
		keys   []string
	}{
		"with groups":    {"system:bootstrappers:machines", []string{"auth-extra-groups"}},
		"without groups": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.TokenGroups = row.groups
			s := w.token(w.issue(machine("m"), "7", expires))
			assert.Equal(t, corev1.SecretTypeBootstrapToken, s.Type)
			assert.Equal(t, map[string]string{"machine.sapcloud.io/machine-uid": "uid-m"}, s.Labels)
			assert.Equal(t, map[string]string{"machine.sapcloud.io/creation-attempt": "7"}, s.Annotations)
			assert.Regexp(t, "^[a-z0-9]{6}$", string(s.Data["token-id"]))
			assert.Regexp(t, "^[a-z0-9]{16}$", string(s.Data["token-secret"]))
			assert.Equal(t, "bootstrap-token-"+string(s.Data["token-id"]), s.Name)
			assert.Equal(t, "2100-01-02T03:04:05Z", string(s.Data["expiration"]))
			assert.Equal(t, "true", string(s.Data["usage-bootstrap-authentication"]))
			assert.Equal(t, "true", string(s.Data["usage-bootstrap-signing"]))
			assert.Contains(t, string(s.Data["description"]), "shop/m")
			assert.Equal(t, row.groups, string(s.Data["auth-extra-groups"]))
			keys := append([]string{"description", "expiration", "token-id", "token-secret", "usage-bootstrap-authentication", "usage-bootstrap-signing"}, row.keys...)
			assert.ElementsMatch(t, keys, slices.Collect(maps.Keys(s.Data)))
		})
	}
}

func TestN4_TwoMachinesDoNotShareABootstrapToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, other := machine("web-5f6d7-abcde"), machine("api-77c9d-abcde")
	a, b := w.issue(one, "1", soon()), w.issue(other, "1", soon())
	assert.NotEqual(t, a.Name, b.Name, "names that end alike")
	assert.NotEqual(t, w.token(a).Data["token-secret"], w.token(b).Data["token-secret"])

	w.revoke(one)
	assert.Nil(t, w.token(a))
	assert.NotNil(t, w.token(b), "that one machine has joined is nothing to the other")

	again := machine("web-5f6d7-abcde")
	again.UID = "uid-of-a-later-one"
	assert.NotEqual(t, a.Name, w.issue(again, "1", soon()).Name, "a new machine of the same name")
}

func TestD4_ABootstrapTokenIsForOneAttempt(t *testing.T) {
	t.Parallel()
	t.Run("D4: a name shorter than five bytes", func(t *testing.T) {
		w := newWorld(t)
		assert.NotNil(t, w.token(w.issue(machine("m"), "1", soon())))
	})
	t.Run("D4: the same attempt finds its token", func(t *testing.T) {
		w, expires := newWorld(t), soon()
		first := w.issue(machine("m"), "1", expires)
		before := w.token(first)
		w.forget()
		assert.Equal(t, first, w.issue(machine("m"), "1", expires))
		assert.Equal(t, before, w.token(first))
		assert.Equal(t, []string{"create secrets"}, w.writes(), "which the API server did not take")
		assert.Equal(t, []string{first.Name}, w.tokens())
	})
	t.Run("D4: another attempt gets another, and the earlier one stays", func(t *testing.T) {
		w, names, halves := newWorld(t), []string{}, map[string]bool{}
		for n := range activities.MaxTokenNames + 2 { // earlier attempts take no names from later ones
			got := w.issue(machine("m"), strconv.Itoa(n), soon())
			names = append(names, got.Name)
			halves[string(w.token(got).Data["token-secret"])] = true
		}
		assert.ElementsMatch(t, names, w.tokens())
		assert.Len(t, halves, len(names))
	})
	t.Run("D4: an expired token is not used again", func(t *testing.T) {
		w := newWorld(t)
		first := w.issue(machine("m"), "1", soon())
		w.alter(first, "expiration", time.Now().UTC().Add(-time.Second).Format(time.RFC3339))
		expired := w.token(first)
		second := w.issue(machine("m"), "1", soon())
		assert.NotEqual(t, first.Name, second.Name)
		assert.Equal(t, expired, w.token(first))
		assert.Equal(t, second, w.issue(machine("m"), "1", soon()), "the one that took its place is found")
	})
	t.Run("D4: none is made that has expired already", func(t *testing.T) {
		w := newWorld(t)
		_, err := activities.IssueToken(w.Activities, t.Context(), machine("m"), "1", time.Now())
		require.ErrorContains(t, err, "of machine shop/m would have expired at")
		assert.Empty(t, w.tokens())
	})
}

func TestABootstrapTokenLivesLongEnough(t *testing.T) {
	t.Parallel()
	w, expires := newWorld(t), soon()
	first := w.issue(machine("m"), "1", expires)
	before := w.token(first)

	assert.Equal(t, first, w.issue(machine("m"), "1", expires.Add(-time.Minute)))
	assert.Equal(t, before, w.token(first), "it never lives shorter")

	later := expires.Add(time.Minute)
	failing(w.target, "patch", "secrets", 1, nil, func() {
		w.alter(first, "description", "changed meanwhile")
	})
	_, err := activities.IssueToken(w.Activities, t.Context(), machine("m"), "1", later)
	require.EqualError(t, err, "extend secret "+first.Name+": the API server answered 409 Conflict")
	assert.Equal(t, before.Data["expiration"], w.token(first).Data["expiration"], "only what was seen is changed")

	assert.Equal(t, first, w.issue(machine("m"), "1", later))
	after := w.token(first)
	assert.Equal(t, later.UTC().Format(time.RFC3339), string(after.Data["expiration"]))
	assert.Equal(t, before.Data["token-secret"], after.Data["token-secret"])
}

func TestASecretThatIsNotTheAttemptsTokenIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Secret){
		"D4: another machine's":       func(s *corev1.Secret) { s.Labels[v1alpha1.LabelMachineUID] = "uid-other" },
		"D4: nobody's":                func(s *corev1.Secret) { s.Labels = nil },
		"D4: another attempt's":       func(s *corev1.Secret) { s.Annotations[v1alpha1.AnnotationAttempt] = "0" },
		"D4: one that is no token":    func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"D4: one that never expires":  func(s *corev1.Secret) { delete(s.Data, "expiration") },
		"D4: one that is being taken": going[*corev1.Secret],
		"D4: one with another's id":   func(s *corev1.Secret) { s.Data["token-id"] = []byte("aaaaaa") },
		"D4: one without a secret":    func(s *corev1.Secret) { delete(s.Data, "token-secret") },
	} {
		t.Run(name, func(t *testing.T) {
			found := tokenSecret(change)
			w := newWorld(t, found.DeepCopy())
			got := w.issue(machine("m"), "1", soon())
			assert.Equal(t, activities.TokenName("uid-m", "1", 1), got.Name)
			assert.Equal(t, found, w.token(activities.TokenRef{Namespace: kubeSystem, Name: found.Name}))
			assert.NotEqual(t, found.Data["token-secret"], w.token(got).Data["token-secret"])
		})
	}
	t.Run("while its own is kept", func(t *testing.T) {
		w := newWorld(t, tokenSecret())
		assert.Equal(t, tokenSecret().Name, w.issue(machine("m"), "1", soon()).Name)
	})
	t.Run("when all names are taken", func(t *testing.T) {
		var taken []runtime.Object
		for n := range activities.MaxTokenNames {
			taken = append(taken, tokenSecret(func(s *corev1.Secret) { s.Name, s.Labels = activities.TokenName("uid-m", "1", n), nil }))
		}
		w := newWorld(t, taken...)
		_, err := activities.IssueToken(w.Activities, t.Context(), machine("m"), "1", soon())
		require.EqualError(t, err, "all 10 names for a bootstrap token of machine shop/m are taken")
		assert.Len(t, w.tokens(), len(taken))
	})
}

func TestRevokeTokens(t *testing.T) {
	t.Parallel()
	m := machine("m")
	mark := func(s *corev1.Secret) { s.Labels = map[string]string{v1alpha1.LabelMachineUID: "uid-m"} }
	opaque := with(secret("shared", nil), []func(*corev1.Secret){mark, func(s *corev1.Secret) { s.Namespace = kubeSystem }})
	foreign := tokenSecret(func(s *corev1.Secret) { s.Name, s.Labels = "bootstrap-token-aaaaaa", nil })
	elsewhere := tokenSecret(func(s *corev1.Secret) { s.Namespace = shop })

	t.Run("removes all of the machine's, and nothing else", func(t *testing.T) {
		w := newWorld(t, opaque.DeepCopy(), foreign.DeepCopy(), elsewhere.DeepCopy())
		for _, attempt := range []string{"1", "2", "3"} {
			w.issue(m, attempt, soon())
		}
		other := w.issue(machine("other"), "1", soon())
		w.revoke(m)
		assert.ElementsMatch(t, []string{opaque.Name, foreign.Name, other.Name}, w.tokens())
		assert.NotNil(t, w.token(activities.TokenRef{Namespace: shop, Name: elsewhere.Name}))
	})
	t.Run("a token that somebody else removes meanwhile", func(t *testing.T) {
		w := newWorld(t, tokenSecret())
		failing(w.target, "delete", "secrets", 1, nil, func() {
			require.NoError(t, w.target.Tracker().Delete(secretsGVR, kubeSystem, tokenSecret().Name))
		})
		w.revoke(m)
		assert.Empty(t, w.tokens())
	})
	t.Run("only what was looked at is removed", func(t *testing.T) {
		w := newWorld(t, tokenSecret())
		failing(w.target, "delete", "secrets", 1, nil, func() {
			another := tokenSecret(func(s *corev1.Secret) { s.UID, s.Labels = "uid-of-another", nil })
			require.NoError(t, w.target.Tracker().Update(secretsGVR, another, kubeSystem))
		})
		_, err := run[any](w, w.RevokeTokens, ref(m))
		require.Error(t, err)
		_, retryable := failure(t, err)
		assert.True(t, retryable)
		w.revoke(m)
		assert.Len(t, w.tokens(), 1)
	})
	t.Run("an API server that is away", func(t *testing.T) {
		for _, verb := range []string{"list", "delete"} {
			w := newWorld(t, tokenSecret())
			failing(w.target, verb, "secrets", 1, apierrors.NewServiceUnavailable("away"), nil)
			_, err := run[any](w, w.RevokeTokens, ref(m))
			require.ErrorContains(t, err, "away", verb)
			w.revoke(m)
			assert.Empty(t, w.tokens(), verb)
		}
	})
}

func TestU73_WithoutATargetClusterThereAreNoTokens(t *testing.T) {
	t.Parallel()
	a := &activities.Activities{Cluster: &observe.Cluster{}}
	got, err := activities.IssueToken(a, t.Context(), machine("m"), "1", soon())
	require.NoError(t, err)
	assert.Zero(t, got)
	assert.NoError(t, a.RevokeTokens(t.Context(), ref(machine("m"))))
}

// TestATokenThatCannotBeWrittenIsNotTold has an admission controller that quotes what it refuses.
func TestATokenThatCannotBeWrittenIsNotTold(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"create", "patch"} {
		t.Run(verb, func(t *testing.T) {
			w := newWorld(t)
			expires := soon()
			if verb == "patch" {
				w.issue(machine("m"), "1", expires.Add(-time.Minute))
			}
			quoted := ""
			w.target.PrependReactor(verb, "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
				switch a := action.(type) {
				case clienttesting.CreateActionImpl:
					quoted = string(a.Object.(*corev1.Secret).Data["token-secret"])
				case clienttesting.PatchActionImpl:
					quoted = string(w.token(activities.TokenRef{Namespace: a.Namespace, Name: a.Name}).Data["token-secret"])
				}
				return true, nil, apierrors.NewForbidden(secretsGVR.GroupResource(), "x", errors.New("not allowed: "+quoted))
			})
			_, err := activities.IssueToken(w.Activities, t.Context(), machine("m"), "1", expires)
			require.Error(t, err)
			require.Len(t, quoted, 16)
			assert.NotContains(t, err.Error(), quoted)
			assert.Contains(t, err.Error(), "the API server answered 403 Forbidden")
		})
	}
}
