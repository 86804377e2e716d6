package cloud

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/devstack/virtualcloud/admin"
	"millwright/provider/virtual"
)

const testToken = "canary-token-5d1b"

// serveCloud serves a cloud and returns the cloud's address, its admin client and its log.
func serveCloud(t testing.TB) (string, *admin.Client, *bytes.Buffer) {
	t.Helper()
	logged := &bytes.Buffer{}
	logger := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := Open(Options{Dir: t.TempDir(), Logger: logger})
	require.NoError(t, err)
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		server.Close()
	})
	return server.URL, admin.NewClient(server.URL), logged
}

// sendRequest sends a request with the test's token and returns the response and its body.
func sendRequest(t testing.TB, method, url string, body any) (*http.Response, []byte) {
	t.Helper()
	encoded, err := json.Marshal(body)
	require.NoError(t, err)
	if text, isText := body.(string); isText {
		encoded = []byte(text)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(encoded))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+testToken)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer, content
}

func TestRefusalIsAnHTTPErrorWithRetryAfter(t *testing.T) {
	address, back, logged := serveCloud(t)
	require.NoError(t, back.AddFault(t.Context(), admin.Fault{
		Operation:  admin.OperationCreate,
		Code:       "ResourceExhausted",
		Message:    "no room",
		RetryAfter: virtual.Duration(1500 * time.Millisecond),
	}))
	answer, body := sendRequest(t, http.MethodPost, address+virtual.PathInstances, newCreateRequest("a"))
	assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	assert.Equal(t, "2", answer.Header.Get("Retry-After"), "whole seconds, rounded up")
	assert.JSONEq(t, `{"code":"ResourceExhausted","message":"no room","retryAfter":"1.5s"}`, string(body))

	stats, err := back.Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[admin.Operation]int{admin.OperationCreate: 1}, stats.Calls)
	assert.Equal(t, map[string]int{"ResourceExhausted": 1}, stats.RefusalsByCode)
	assert.NotContains(t, logged.String(), testToken)
}

func TestCredentialsAreCheckedAndNotLogged(t *testing.T) {
	address, back, logged := serveCloud(t)
	answer, err := http.Get(address + virtual.PathLimits) // http.Get sends no credentials
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusUnauthorized, answer.StatusCode)

	require.NoError(
		t,
		back.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) { b.AcceptedTokens = []string{"another", "third"} }),
	)
	answer, body := sendRequest(t, http.MethodPost, address+virtual.PathInstances, newCreateRequest("a"))
	assert.Equal(t, http.StatusUnauthorized, answer.StatusCode)
	assert.NotContains(t, string(body)+logged.String(), testToken)

	require.NoError(
		t,
		back.ChangeBehaviour(
			t.Context(),
			func(b *admin.Behaviour) { b.AcceptedTokens = append(b.AcceptedTokens, testToken) },
		),
	)
	answer, _ = sendRequest(t, http.MethodPost, address+virtual.PathInstances, newCreateRequest("a"))
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.NotContains(t, logged.String(), testToken)
	assert.Contains(t, logged.String(), "instance accepted")
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	address, _, _ := serveCloud(t)
	for body, want := range map[string]string{
		`{`:                 `request: unexpected EOF`,
		`{"colour": "red"}`: `unknown field \"colour\"`,
		`{}`:                `name: is required`,
		`{"name": "a", "tags": {"cluster": "c"}, "spec": {"region": "r", "zone": "z"}}`: `spec.instanceType: is required`,
	} {
		answer, told := sendRequest(t, http.MethodPost, address+virtual.PathInstances, body)
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
		assert.Contains(t, string(told), want)
	}
	answer, _ := sendRequest(t, http.MethodDelete, address+virtual.PathInstances+"/i-01", nil)
	assert.Equal(t, http.StatusNotFound, answer.StatusCode)
	answer, _ = sendRequest(
		t,
		http.MethodPost,
		address+virtual.PathInstances,
		`{"name": "`+strings.Repeat("x", maxBodyBytes)+`"}`,
	)
	assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
}

func TestAdminAPIChangesTheCloud(t *testing.T) {
	address, back, _ := serveCloud(t)
	ctx := t.Context()
	b, err := back.Behaviour(ctx)
	require.NoError(t, err)
	assert.Equal(t, admin.DefaultBehaviour(), b)

	_, body := sendRequest(t, http.MethodPatch, address+admin.PathBehaviour, `{"bootLatency": "2s"}`)
	assert.Contains(t, string(body), `"bootLatency":"2s"`)
	assert.Contains(t, string(body), `"clientTokens":true`, "the rest stays")
	_, body = sendRequest(t, http.MethodPatch, address+admin.PathBehaviour, `{"clientTokens": false}`)
	assert.Contains(t, string(body), `"bootLatency":"2s"`)
	_, body = sendRequest(t, http.MethodPut, address+admin.PathBehaviour, `{"staleness": "1s"}`)
	assert.Contains(t, string(body), `"bootLatency":"0s"`, "what is left out takes its default")
	assert.Contains(t, string(body), `"clientTokens":true`)
	_, body = sendRequest(t, http.MethodPut, address+admin.PathBehaviour, `{"stalenes": "1s"}`)
	assert.Contains(t, string(body), `unknown field`)

	r := newCreateRequest("a")
	r.UserData = []byte("hello")
	planted, err := back.CreateByHand(ctx, r)
	require.NoError(t, err)
	data, err := back.UserData(ctx, planted.ID)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(data))
	instances, err := back.Instances(ctx)
	require.NoError(t, err)
	require.Len(t, instances, 1)
	assert.Equal(t, "small", instances[0].InstanceType)

	require.NoError(t, back.MakeInstanceVanish(ctx, admin.VanishRequest{Machine: "a"}))
	require.ErrorContains(
		t,
		back.MakeInstanceVanish(ctx, admin.VanishRequest{Machine: "a"}),
		"no live instance fits (NotFound)",
	)
	_, err = back.UserData(ctx, planted.ID)
	require.Error(t, err)

	require.NoError(t, back.AddFault(ctx, admin.Fault{Operation: admin.OperationList, Code: "Internal"}))
	faults, err := back.Faults(ctx)
	require.NoError(t, err)
	assert.Len(t, faults, 1)
	require.NoError(t, back.ClearFaults(ctx))
	require.NoError(t, back.ResetCloud(ctx))
	stats, err := back.Stats(ctx)
	require.NoError(t, err)
	assert.Zero(t, stats.CreatedInstances)
}

func TestHangingCreateCallHasCreatedTheInstance(t *testing.T) {
	address, back, _ := serveCloud(t)
	require.NoError(t, back.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) {
		b.HangPoints = map[admin.Operation]admin.HangPoint{admin.OperationCreate: admin.HangAfterEffect}
	}))
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		sendRequest(t, http.MethodPost, address+virtual.PathInstances, newCreateRequest("a"))
	}()
	require.Eventually(t, func() bool {
		instances, err := back.Instances(t.Context())
		return err == nil && len(instances) == 1
	}, 2*time.Minute, time.Millisecond)
	assert.Empty(t, answered)
	require.NoError(t, back.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) { b.HangPoints = nil }))
	<-answered
}

func TestHealthzAnswersOK(t *testing.T) {
	address, _, _ := serveCloud(t)
	_, body := sendRequest(t, http.MethodGet, address+"/healthz", nil)
	assert.Equal(t, "ok\n", string(body))
}

// BenchmarkCreate measures the creation of one instance without latency, including HTTP and disk.
func BenchmarkCreate(b *testing.B) {
	address, _, _ := serveCloud(b)
	for i := 0; b.Loop(); i++ {
		sendRequest(b, http.MethodPost, address+virtual.PathInstances, newCreateRequest(fmt.Sprintf("m-%d", i)))
	}
}

func TestErrorMessageQuotesCredentialsIfConfigured(t *testing.T) {
	address, client, _ := serveCloud(t)
	require.NoError(t, client.ChangeBehaviour(t.Context(), func(b *admin.Behaviour) { b.QuoteCredentials = true }))
	_, body := sendRequest(t, http.MethodDelete, address+virtual.PathInstances+"/i-9?cluster=c1", nil)
	var told virtual.ErrorAnswer
	require.NoError(t, json.Unmarshal(body, &told))
	assert.Equal(t, "NotFound", told.Code)
	assert.Contains(t, told.Message, `token "`+testToken+`"`)
	assert.Contains(t, told.Message, "?token="+testToken)
	assert.Contains(t, told.Message, base64.StdEncoding.EncodeToString([]byte("user:"+testToken)))
}
