//go:build integration

package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"millwright/devstack/component"
)

// AuditedRequest is one line of the API server's audit log: a request of a user of Millwright.
type AuditedRequest struct {
	Stage            string // ResponseStarted or ResponseComplete; a watch has a line for each of both
	Verb, RequestURI string
	UserAgent        string
	ObjectRef        struct{ APIGroup, Resource, Namespace, Name, Subresource string }
	User             struct{ Username string }

	RequestReceivedTimestamp time.Time
	ResponseStatus           struct {
		Code    int
		Message string
	}
}

// AuditedRequests returns the lines of the audit log for which wanted returns true, in order. The result includes every
// request that the API server has answered before the call. The API server writes the log after its answer.
// AuditedRequests therefore sends a request of its own and waits until this request is in the log.
func (r *Rig) AuditedRequests(t *testing.T, wanted func(AuditedRequest) bool) (found []AuditedRequest) {
	t.Helper()
	mark := "audited-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	Eventually(t, "the audit log has what was asked until now", func() (bool, any) {
		_, err := r.Kube.CoreV1().Namespaces().Get(context.WithoutCancel(t.Context()), mark, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return false, err
		}
		file, err := os.Open(r.Stack.AuditLogPath())
		require.NoError(t, err)
		defer func() { _ = file.Close() }()
		found = nil
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line AuditedRequest
			switch err := json.Unmarshal(lines.Bytes(), &line); {
			case err != nil: // the last line may be incomplete
			case line.ObjectRef.Name == mark:
				return true, nil
			case wanted(line):
				found = append(found, line)
			}
		}
		return false, len(found)
	})
	return found
}

// GetAPIServerPath sends a GET request for a path of an API server, and returns the status and the header of the
// answer. The header of the answer has the UID of the flow schema that matched the request.
func GetAPIServerPath(t *testing.T, config *rest.Config, path string) (status int, header http.Header) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
	require.NoError(t, err)
	answer, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Header
}

// LimitSecretReaders lets only these users read the Secrets of classes. Each user must be a process that polls the task
// queue of a provider. By default the stack's worker polls all task queues and may read these Secrets.
func (r *Rig) LimitSecretReaders(t *testing.T, users ...string) {
	t.Helper()
	bindings := r.Kube.RbacV1().ClusterRoleBindings()
	binding, err := bindings.Get(t.Context(), "devstack-"+component.SecretsRole, metav1.GetOptions{})
	require.NoError(t, err)
	binding.Subjects = nil
	for _, user := range users {
		binding.Subjects = append(
			binding.Subjects,
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user},
		)
	}
	_, err = bindings.Update(t.Context(), binding, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// RequireOneEviction requires that the API server has accepted evictions since a time, and no two of the same pod.
func (r *Rig) RequireOneEviction(t *testing.T, since time.Time) {
	t.Helper()
	evictions := map[string]int{}
	for _, a := range r.AuditedRequests(t, func(a AuditedRequest) bool {
		return a.Stage == "ResponseComplete" && a.RequestReceivedTimestamp.After(since) &&
			a.ResponseStatus.Code == http.StatusCreated && a.ObjectRef.Resource == "pods" && a.ObjectRef.Subresource == "eviction"
	}) {
		evictions[a.ObjectRef.Namespace+"/"+a.ObjectRef.Name]++
	}
	require.NotEmpty(t, evictions)
	for pod, count := range evictions {
		assert.Equal(t, 1, count, "accepted evictions of pod %s", pod)
	}
}
