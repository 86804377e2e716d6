//go:build integration

package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Six machines are replaced under a Deployment with a budget. A client sends ten requests per second, each to a random
// ready endpoint, like a load balancer. No request fails, and each terminated pod gets SIGTERM and its full linger
// time.
func TestNoRequestFailsWhileRealMachinesAreReplaced(t *testing.T) {
	runParallelIfSupported(t)
	const linger = 5 * time.Second
	p := newRunningPool(t, "rolling", 6, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(2)), MaxUnavailable: new(intstr.FromInt32(0)),
			}},
		}
	})
	p.DeployPods(t, "web", 4, withWorkload(linger, corev1.ScheduleAnyway))
	awaitReadyPods(t, p, 4)
	p.CreateBudget(t, "web", 3)
	_, err := testRig.Kube.CoreV1().Services(p.Namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone,
			Selector:  map[string]string{"app": "web"},
			Ports:     []corev1.ServicePort{{Port: 8080}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	rig.Eventually(t, "the service has endpoints", func() (bool, any) {
		ready, err := readyEndpointAddresses(t.Context(), p)
		return len(ready) == 4, []any{ready, err}
	})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	logs := followPodLogs(ctx, t, p)
	asked := startSendingRequests(ctx, p)
	former := sets.New[string]()
	for _, m := range p.Machines(t) {
		former.Insert(m.Name)
	}
	began := time.Now()
	p.Patch(t, `{"spec":{"template":{"metadata":{"labels":{"edition":"2"}}}}}`)
	rig.Eventually(t, "all machines are replaced", func() (bool, any) {
		left := 0
		for _, m := range p.Machines(t) {
			if former.Has(m.Name) {
				left++
			}
		}
		return left == 0, left
	})
	p.AwaitRunningMachines(t, 6)
	took := time.Since(began)
	last := awaitReadyPods(t, p, 4)
	cancel()

	requests, failures := asked()
	t.Logf(
		"%d requests, %d failed, while six machines were replaced in %s",
		requests,
		len(failures),
		took.Round(time.Second),
	)
	assert.Empty(t, failures)
	assert.NotZero(t, requests)
	stays := sets.New[string]()
	for _, pod := range last {
		stays.Insert(pod.Name)
	}
	went := 0
	for pod, log := range logs() {
		if stays.Has(pod) {
			continue
		}
		went++
		assert.Contains(t, log, fmt.Sprintf("%s was told to end: serves for %s more", pod, linger))
		assert.Contains(t, log, pod+" ended\n", "it was not killed before")
	}
	assert.GreaterOrEqual(t, went, 4, "each of the first pods was on a machine that went")
	t.Logf("%d pods got SIGTERM and had their %s", went, linger)
	assert.Len(t, listInstances(t, p), 6)
}

// readyEndpointAddresses returns the addresses of the ready pods of the app "web".
func readyEndpointAddresses(ctx context.Context, p *rig.Pool) ([]string, error) {
	slices, err := testRig.Kube.DiscoveryV1().
		EndpointSlices(p.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		return nil, err
	}
	var ready []string
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready = append(ready, e.Addresses...)
			}
		}
	}
	return ready, nil
}

// startSendingRequests sends ten requests per second to random ready endpoints until ctx ends. A slow response does not
// delay other requests. The returned function waits for the last responses, and returns the number of requests and the
// errors.
func startSendingRequests(ctx context.Context, p *rig.Pool) func() (requests int, failures []error) {
	var (
		sender, answers sync.WaitGroup
		lock            sync.Mutex
		requests        int
		failures        []error
	)
	once := func() error {
		ready, err := readyEndpointAddresses(context.WithoutCancel(ctx), p)
		if err != nil {
			return err
		}
		if len(ready) == 0 {
			return errors.New("no endpoint is ready")
		}
		_, err = getWorkloadPodName(ready[rand.IntN(len(ready))])
		return err
	}
	sender.Go(func() {
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				requests++
				answers.Go(func() {
					if err := once(); err != nil {
						lock.Lock()
						failures = append(failures, fmt.Errorf("%s: %w", time.Now().Format(time.TimeOnly), err))
						lock.Unlock()
					}
				})
			}
		}
	})
	return func() (int, []error) {
		sender.Wait()
		answers.Wait()
		return requests, failures
	}
}

// followPodLogs reads the logs of all pods of the app "web" until ctx ends. The returned function waits for the last
// log lines, and returns the logs by pod name.
func followPodLogs(ctx context.Context, t *testing.T, p *rig.Pool) func() map[string]string {
	t.Helper()
	pods := testRig.Kube.CoreV1().Pods(p.Namespace)
	logs := map[string]*bytes.Buffer{}
	var finder, followers sync.WaitGroup
	follow := func(pod string, into io.Writer) {
		for ctx.Err() == nil {
			stream, err := pods.GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
			if err != nil { // the pod has not started, or its node has no certificate yet
				time.Sleep(pollInterval)
				continue
			}
			_, _ = io.Copy(into, stream)
			_ = stream.Close()
			return
		}
	}
	finder.Go(func() {
		for ctx.Err() == nil {
			list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
			for i := 0; err == nil && i < len(list.Items); i++ {
				if name := list.Items[i].Name; logs[name] == nil {
					log := &bytes.Buffer{}
					logs[name] = log
					followers.Go(func() { follow(name, log) })
				}
			}
			time.Sleep(pollInterval)
		}
	})
	return func() map[string]string {
		finder.Wait()
		followers.Wait()
		texts := map[string]string{}
		for name, log := range logs {
			texts[name] = log.String()
		}
		return texts
	}
}
