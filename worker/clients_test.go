package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"millwright/process"
	"millwright/process/problems"
)

// A worker that may not read the nodes of a workload cluster names the cluster.
func TestProblemsOfAWorkloadClusterHaveItsName(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not for w", http.StatusForbidden)
	}))
	defer server.Close()
	o := options{Flags: process.Flags{Problems: problems.New("prod")}}
	client, err := clients{}.workloadAccess(o).Connect(&rest.Config{Host: server.URL}, "shop", "c1")
	require.NoError(t, err)
	_, err = client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	require.Error(t, err)
	require.Len(t, o.Problems.List(), 1)
	assert.Equal(t, problems.Workload("shop", "c1"), o.Problems.List()[0].System)
	assert.Equal(
		t,
		"the worker may not get nodes of the workload cluster shop/c1: not for w",
		o.Problems.List()[0].Text("worker"),
	)
}
