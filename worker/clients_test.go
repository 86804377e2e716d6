package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"millwright/process"
	"millwright/process/problems"
)

// A worker that may not read the nodes of a workload cluster reports the name of this cluster.
func TestProblemsOfAWorkloadClusterHaveItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { testProblemsOfAWorkloadCluster(t) })
}

func testProblemsOfAWorkloadCluster(t *testing.T) {
	t.Helper()
	refuses := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusForbidden,
			Request:    r,
			Header:     http.Header{},
			Body:       io.NopCloser(strings.NewReader("not for w")),
		}, nil
	})
	o := options{Flags: process.Flags{ProblemRecorder: problems.New("prod")}}
	client, err := clients{}.workloadAccess(o).
		Connect(&rest.Config{Host: "api.example.com", Transport: refuses}, "shop", "c1")
	require.NoError(t, err)
	for range 2 {
		_, err = client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		require.Error(t, err)
		time.Sleep(3 * time.Second)
	}
	require.Len(t, o.ProblemRecorder.List(), 1)
	assert.Equal(t, problems.WorkloadClusterSystem("shop", "c1"), o.ProblemRecorder.List()[0].System)
	assert.Equal(
		t,
		"the worker may not get nodes of the workload cluster shop/c1: not for w",
		o.ProblemRecorder.List()[0].Text("worker"),
	)
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
