package main

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"millwright/api/generated/clientset/versioned"
	"millwright/process"
)

// clients are those of the control cluster and the target cluster, which may be the same.
type clients struct {
	config   *rest.Config         // of the control cluster
	machines versioned.Interface  // machine objects
	control  kubernetes.Interface // Secrets of classes, events
	metadata metadata.Interface   // of the control cluster's Secrets; nil if they get no finalizers
	target   kubernetes.Interface // nodes, bootstrap tokens; nil without a target cluster
}

// connect makes the clients. It sends no request yet.
func connect(o options) (c clients, err error) {
	const agent = "millwright-worker"
	control, err := o.Kubernetes(agent)
	if err != nil {
		return c, err
	}
	c.config = control
	if c.machines, err = versioned.NewForConfig(control); err != nil {
		return c, fmt.Errorf("make client: %w", err)
	}
	if c.control, err = process.KubernetesClient(control); err != nil {
		return c, err
	}
	if o.guardSecrets {
		if c.metadata, err = metadata.NewForConfig(control); err != nil {
			return c, fmt.Errorf("make client: %w", err)
		}
	}
	target, err := o.Target(agent)
	if err != nil || target == nil {
		return c, err
	}
	target.Wrap(func(next http.RoundTripper) http.RoundTripper { return impatient{next} })
	c.target, err = process.KubernetesClient(target)
	return c, err
}

// impatient returns the refusal of an eviction at once. Otherwise the client would wait and retry up to ten times, while the
// drain knows better when a budget allows the eviction.
type impatient struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := i.next.RoundTrip(request)
	if err == nil && strings.HasSuffix(request.URL.Path, "/eviction") {
		response.Header.Del("Retry-After") // the body has it, too
	}
	return response, err
}
