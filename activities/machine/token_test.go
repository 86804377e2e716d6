package machine_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"millwright/activities/activitiestest"
	"millwright/activities/kube"
	"millwright/activities/machine"
	"millwright/api/generated/clientset/versioned/fake"
	"millwright/api/v1alpha1"
	"millwright/observe/cache"
)

// issueToken creates or finds a token.
func issueToken(w *activitiestest.World, m *v1alpha1.Machine, attempt string, expires time.Time) kube.TokenRef {
	w.T.Helper()
	ref, err := machine.IssueToken(w.T.Context(), newActivities(w.Kube), m, attempt, expires)
	require.NoError(w.T, err)
	require.Equal(w.T, activitiestest.TokenNamespace, ref.Namespace)
	return ref
}

func TestIssueTokenWritesBootstrapTokenSecret(t *testing.T) {
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
			w := activitiestest.NewWorld(t)
			w.TokenGroups = row.groups
			s := w.TokenSecret(issueToken(w, activitiestest.NewMachine("m"), "7", expires))
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
			keys := append(
				[]string{
					"description",
					"expiration",
					"token-id",
					"token-secret",
					"usage-bootstrap-authentication",
					"usage-bootstrap-signing",
				},
				row.keys...)
			assert.ElementsMatch(t, keys, slices.Collect(maps.Keys(s.Data)))
		})
	}
}

func TestTwoMachinesDoNotShareABootstrapToken(t *testing.T) {
	t.Parallel()
	w := activitiestest.NewWorld(t)
	one, other := activitiestest.NewMachine("web-5f6d7-abcde"), activitiestest.NewMachine("api-77c9d-abcde")
	a, b := issueToken(
		w,
		one,
		"1",
		activitiestest.TokenExpiration(),
	), issueToken(
		w,
		other,
		"1",
		activitiestest.TokenExpiration(),
	)
	assert.NotEqual(t, a.Name, b.Name, "names that end alike")
	assert.NotEqual(t, w.TokenSecret(a).Data["token-secret"], w.TokenSecret(b).Data["token-secret"])

	w.RevokeTokensTwice(one)
	assert.Nil(t, w.TokenSecret(a))
	assert.NotNil(t, w.TokenSecret(b), "that one machine has joined is nothing to the other")

	again := activitiestest.NewMachine("web-5f6d7-abcde")
	again.UID = "uid-of-a-later-one"
	assert.NotEqual(
		t,
		a.Name,
		issueToken(w, again, "1", activitiestest.TokenExpiration()).Name,
		"a new machine of the same name",
	)
}

func TestEachCreationAttemptHasItsOwnBootstrapToken(t *testing.T) {
	t.Parallel()
	t.Run("a name shorter than five bytes", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		assert.NotNil(t, w.TokenSecret(issueToken(w, activitiestest.NewMachine("m"), "1", activitiestest.TokenExpiration())))
	})
	t.Run("the same attempt finds its token", func(t *testing.T) {
		w, expires := activitiestest.NewWorld(t), activitiestest.TokenExpiration()
		first := issueToken(w, activitiestest.NewMachine("m"), "1", expires)
		before := w.TokenSecret(first)
		w.ForgetRequests()
		assert.Equal(t, first, issueToken(w, activitiestest.NewMachine("m"), "1", expires))
		assert.Equal(t, before, w.TokenSecret(first))
		assert.Equal(t, []string{"create secrets"}, w.MutatingRequests(), "which the API server did not take")
		assert.Equal(t, []string{first.Name}, w.TokenSecretNames())
	})
	t.Run("another attempt gets another, and the earlier one stays", func(t *testing.T) {
		w, names, halves := activitiestest.NewWorld(t), []string{}, map[string]bool{}
		// the names of earlier attempts do not collide with the names of later attempts
		for n := range machine.MaxTokenNames + 2 {
			got := issueToken(w, activitiestest.NewMachine("m"), strconv.Itoa(n), activitiestest.TokenExpiration())
			names = append(names, got.Name)
			halves[string(w.TokenSecret(got).Data["token-secret"])] = true
		}
		assert.ElementsMatch(t, names, w.TokenSecretNames())
		assert.Len(t, halves, len(names))
	})
	t.Run("an expired token is not used again", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		first := issueToken(w, activitiestest.NewMachine("m"), "1", activitiestest.TokenExpiration())
		w.ChangeTokenSecret(first, "expiration", time.Now().UTC().Add(-time.Second).Format(time.RFC3339))
		expired := w.TokenSecret(first)
		second := issueToken(w, activitiestest.NewMachine("m"), "1", activitiestest.TokenExpiration())
		assert.NotEqual(t, first.Name, second.Name)
		assert.Equal(t, expired, w.TokenSecret(first))
		assert.Equal(
			t,
			second,
			issueToken(w, activitiestest.NewMachine("m"), "1", activitiestest.TokenExpiration()),
			"the one that took its place is found",
		)
	})
	t.Run("none is made that has expired already", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		_, err := machine.IssueToken(t.Context(), newActivities(w.Kube), activitiestest.NewMachine("m"), "1", time.Now())
		require.ErrorContains(t, err, "of machine shop/m would have expired at")
		assert.Empty(t, w.TokenSecretNames())
	})
}

func TestBootstrapTokenHasMinimumLifetime(t *testing.T) {
	t.Parallel()
	w, expires := activitiestest.NewWorld(t), activitiestest.TokenExpiration()
	first := issueToken(w, activitiestest.NewMachine("m"), "1", expires)
	before := w.TokenSecret(first)

	assert.Equal(t, first, issueToken(w, activitiestest.NewMachine("m"), "1", expires.Add(-time.Minute)))
	assert.Equal(t, before, w.TokenSecret(first), "it never lives shorter")

	later := expires.Add(time.Minute)
	activitiestest.FailRequests(w.TargetClient, "patch", "secrets", 1, nil, func() {
		w.ChangeTokenSecret(first, "description", "changed meanwhile")
	})
	_, err := machine.IssueToken(t.Context(), newActivities(w.Kube), activitiestest.NewMachine("m"), "1", later)
	require.EqualError(t, err, "extend secret "+first.Name+": the API server answered 409 Conflict")
	assert.Equal(t, before.Data["expiration"], w.TokenSecret(first).Data["expiration"], "only what was seen is changed")

	assert.Equal(t, first, issueToken(w, activitiestest.NewMachine("m"), "1", later))
	after := w.TokenSecret(first)
	assert.Equal(t, later.UTC().Format(time.RFC3339), string(after.Data["expiration"]))
	assert.Equal(t, before.Data["token-secret"], after.Data["token-secret"])
}

func TestIssueTokenDoesNotChangeOtherSecrets(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Secret){
		"another machine's":       func(s *corev1.Secret) { s.Labels[v1alpha1.LabelMachineUID] = "uid-other" },
		"nobody's":                func(s *corev1.Secret) { s.Labels = nil },
		"another attempt's":       func(s *corev1.Secret) { s.Annotations[v1alpha1.AnnotationAttempt] = "0" },
		"one that is no token":    func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"one that never expires":  func(s *corev1.Secret) { delete(s.Data, "expiration") },
		"one that is being taken": activitiestest.WithDeletionTimestamp[*corev1.Secret],
		"one with another's id":   func(s *corev1.Secret) { s.Data["token-id"] = []byte("aaaaaa") },
		"one without a secret":    func(s *corev1.Secret) { delete(s.Data, "token-secret") },
	} {
		t.Run(name, func(t *testing.T) {
			found := activitiestest.NewTokenSecret(change)
			w := activitiestest.NewWorld(t, found.DeepCopy())
			got := issueToken(w, activitiestest.NewMachine("m"), "1", activitiestest.TokenExpiration())
			assert.Equal(t, machine.TokenName("uid-m", "1", 1), got.Name)
			assert.Equal(t, found, w.TokenSecret(kube.TokenRef{Namespace: activitiestest.TokenNamespace, Name: found.Name}))
			assert.NotEqual(t, found.Data["token-secret"], w.TokenSecret(got).Data["token-secret"])
		})
	}
	t.Run("while its own is kept", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewTokenSecret())
		assert.Equal(
			t,
			activitiestest.NewTokenSecret().Name,
			issueToken(w, activitiestest.NewMachine("m"), "1", activitiestest.TokenExpiration()).Name,
		)
	})
	t.Run("when all names are taken", func(t *testing.T) {
		var taken []runtime.Object
		for n := range machine.MaxTokenNames {
			taken = append(
				taken,
				activitiestest.NewTokenSecret(
					func(s *corev1.Secret) { s.Name, s.Labels = machine.TokenName("uid-m", "1", n), nil },
				),
			)
		}
		w := activitiestest.NewWorld(t, taken...)
		_, err := machine.IssueToken(
			t.Context(),
			newActivities(w.Kube),
			activitiestest.NewMachine("m"),
			"1",
			activitiestest.TokenExpiration(),
		)
		require.EqualError(t, err, "all 10 names for a bootstrap token of machine shop/m are taken")
		assert.Len(t, w.TokenSecretNames(), len(taken))
	})
}

func TestRevokeTokens(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	mark := func(s *corev1.Secret) { s.Labels = map[string]string{v1alpha1.LabelMachineUID: "uid-m"} }
	opaque := activitiestest.ApplyChanges(
		activitiestest.NewSecret("shared", nil),
		[]func(*corev1.Secret){mark, func(s *corev1.Secret) { s.Namespace = activitiestest.TokenNamespace }},
	)
	foreign := activitiestest.NewTokenSecret(func(s *corev1.Secret) { s.Name, s.Labels = "bootstrap-token-aaaaaa", nil })
	elsewhere := activitiestest.NewTokenSecret(func(s *corev1.Secret) { s.Namespace = activitiestest.TestNamespace })

	t.Run("with one request", func(t *testing.T) {
		w := activitiestest.NewWorld(t)
		issueToken(w, m, "1", activitiestest.TokenExpiration())
		w.ForgetRequests()
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).RevokeTokens, activitiestest.NewRef(m))
		require.NoError(t, err)
		assert.Equal(t, []string{"delete-collection secrets"}, w.Requests())
		assert.Empty(t, w.TokenSecretNames())
	})
	t.Run("removes all of the machine's, and nothing else", func(t *testing.T) {
		w := activitiestest.NewWorld(t, opaque.DeepCopy(), foreign.DeepCopy(), elsewhere.DeepCopy())
		for _, attempt := range []string{"1", "2", "3"} {
			issueToken(w, m, attempt, activitiestest.TokenExpiration())
		}
		other := issueToken(w, activitiestest.NewMachine("other"), "1", activitiestest.TokenExpiration())
		w.RevokeTokensTwice(m)
		assert.ElementsMatch(t, []string{opaque.Name, foreign.Name, other.Name}, w.TokenSecretNames())
		assert.NotNil(t, w.TokenSecret(kube.TokenRef{Namespace: activitiestest.TestNamespace, Name: elsewhere.Name}))
	})
	t.Run("an API server that is away", func(t *testing.T) {
		w := activitiestest.NewWorld(t, activitiestest.NewTokenSecret())
		activitiestest.FailRequests(
			w.TargetClient,
			"delete-collection",
			"secrets",
			1,
			apierrors.NewServiceUnavailable("away"),
			nil,
		)
		_, err := activitiestest.RunActivity[any](w, newActivities(w.Kube).RevokeTokens, activitiestest.NewRef(m))
		require.ErrorContains(t, err, "away")
		_, retryable := activitiestest.FailureTypeOf(t, err)
		assert.True(t, retryable)
		w.RevokeTokensTwice(m)
		assert.Empty(t, w.TokenSecretNames())
	})
}

func TestNoTokenIsIssuedWithoutATargetCluster(t *testing.T) {
	t.Parallel()
	a := &kube.Kube{Cluster: &cache.Cluster{}}
	got, err := machine.IssueToken(
		t.Context(),
		newActivities(a),
		activitiestest.NewMachine("m"),
		"1",
		activitiestest.TokenExpiration(),
	)
	require.NoError(t, err)
	assert.Zero(t, got)
	assert.NoError(t, newActivities(a).RevokeTokens(t.Context(), activitiestest.NewRef(activitiestest.NewMachine("m"))))
}

// An admission webhook's error may contain the rejected Secret.
func TestATokenThatCannotBeWrittenIsNotRevealed(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"create", "patch"} {
		t.Run(verb, func(t *testing.T) {
			w := activitiestest.NewWorld(t)
			expires := activitiestest.TokenExpiration()
			if verb == "patch" {
				issueToken(w, activitiestest.NewMachine("m"), "1", expires.Add(-time.Minute))
			}
			quoted := ""
			w.TargetClient.PrependReactor(verb, "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
				switch a := action.(type) {
				case clienttesting.CreateActionImpl:
					quoted = string(a.Object.(*corev1.Secret).Data["token-secret"])
				case clienttesting.PatchActionImpl:
					quoted = string(w.TokenSecret(kube.TokenRef{Namespace: a.Namespace, Name: a.Name}).Data["token-secret"])
				}
				return true, nil, apierrors.NewForbidden(
					activitiestest.SecretsResource.GroupResource(),
					"x",
					errors.New("not allowed: "+quoted),
				)
			})
			_, err := machine.IssueToken(t.Context(), newActivities(w.Kube), activitiestest.NewMachine("m"), "1", expires)
			require.Error(t, err)
			require.Len(t, quoted, 16)
			assert.NotContains(t, err.Error(), quoted)
			assert.Contains(t, err.Error(), "the API server answered 403 Forbidden")
		})
	}
}

// The provider's worker reports which user data has no placeholder for a token.
func TestNoTokenIsIssuedIfUserDataHasNoPlaceholder(t *testing.T) {
	t.Parallel()
	m := activitiestest.NewMachine("m")
	w := activitiestest.NewWorld(
		t,
		m,
		activitiestest.NewClass(activitiestest.WithSecretRefs("b")),
		activitiestest.NewSecretMetadata("b"),
	)
	before := activitiestest.DecideMachine(w, activitiestest.NewReadInput(m))
	require.NotEmpty(t, before.Versions)
	assert.True(t, before.Token, "before anybody has read the user data")
	in := newInstanceRecord(activitiestest.NewMachine("m"))
	in.Tokenless = before.Versions
	_, err := activitiestest.RunActivity[machine.RecordResult](w, newActivities(w.Kube).RecordInstance, in)
	require.NoError(t, err)
	w.AwaitCaches()
	w.ForgetRequests()
	assert.False(t, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Token)
	assert.Empty(t, w.Requests())
	assert.True(
		t,
		activitiestest.DecideMachine(w, activitiestest.NewLiveReadInput(m)).Token,
		"a live decision may follow a call that needed one",
	)
	w.EditObject(cache.ClassesResource, "small", activitiestest.NewAnnotationPatch("edited", "1"))
	w.AwaitCaches()
	assert.True(t, activitiestest.DecideMachine(w, activitiestest.NewReadInput(m)).Token, "another version may need one")
}

func TestRevokeTokensIsSkippedIfNoTokenWasNeeded(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		attempts []bool // value of WithoutToken for each attempt
		want     bool
	}{
		"no attempt had one":          {[]bool{true, true}, true},
		"the first one had":           {[]bool{false, true}, false},
		"the class needs one by then": {[]bool{true, false}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := activitiestest.NewMachine("m", activitiestest.WithDeletionTimestamp[*v1alpha1.Machine])
			w := activitiestest.NewWorld(t, m)
			for _, without := range row.attempts {
				_, err := activitiestest.RunActivity[machine.CreateIntentResult](
					w,
					newActivities(w.Kube).RecordCreateIntent,
					machine.Report{Read: activitiestest.NewLiveReadInput(m), WithoutToken: without},
				)
				require.NoError(t, err)
			}
			intent := w.Machine("m").Status.CreationIntent
			require.NotNil(t, intent)
			assert.Equal(t, row.want, intent.WithoutToken)
			assert.NotEmpty(t, intent.RunID, "the record of the create call stays")
			w.AwaitCaches()
			w.ForgetRequests()
			_, err := activitiestest.RunActivity[string](w, newActivities(w.Kube).FinishJoin, activitiestest.NewReadInput(m))
			require.NoError(t, err)
			_, err = activitiestest.RunActivity[string](
				w,
				newActivities(w.Kube).ReleaseMachine,
				machine.ReleaseInput{ReadInput: activitiestest.NewReadInput(m)},
			)
			require.NoError(t, err)
			want := []string{"delete-collection secrets", "delete-collection secrets", "patch machines"}
			if row.want {
				want = want[2:]
			}
			assert.ElementsMatch(t, want, w.Requests())
		})
	}
}

// hangingTarget is a target cluster that does not answer, for all namespaces.
type hangingTarget struct{ cachedTarget *cache.Target }

func (t hangingTarget) Target(string) *cache.Target { return t.cachedTarget }

func (hangingTarget) OnTarget(func(string, *cache.Target)) (stop func()) { return func() {} }

func (hangingTarget) KeepConnected(string) {}

type hangingTransport struct{}

func (hangingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// A target cluster that does not answer must not occupy a slot of the worker until the activity's timeout.
func TestTokenRequestsToAHangingTargetTimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://target.invalid", Transport: hangingTransport{}})
		require.NoError(t, err)
		cluster, err := cache.NewCluster(fake.NewSimpleClientset(), nil, nil)
		require.NoError(t, err)
		cluster.SetTargetSource(hangingTarget{cache.NewTarget(client, "")})
		a, m := newActivities(&kube.Kube{Cluster: cluster}), activitiestest.NewMachine("m")
		for _, request := range []func() error{
			func() error {
				_, err := machine.IssueToken(t.Context(), a, m, "1", time.Now().Add(time.Hour))
				return err
			},
			func() error { return a.RevokeTokens(t.Context(), activitiestest.NewRef(m)) },
		} {
			begun := time.Now()
			err := request()
			require.ErrorIs(t, err, context.DeadlineExceeded, "a plain error is retried")
			assert.Equal(t, 10*time.Second, time.Since(begun))
		}
	})
}
