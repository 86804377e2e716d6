//go:build integration

package rollouts

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// promise is what a rollout keeps to at each moment.
type promise struct {
	replicas, surge, unavailable int
	early                        bool // a machine holds no place any more when its deletion begins
}

func (p promise) most() int  { return p.replicas + p.surge }
func (p promise) least() int { return p.replicas - p.unavailable }

// mostTold bounds how many broken promises are told: what goes on is told once too often already.
const mostTold = 20

// sampler looks again and again at what exists and what is available. When the size changes, each bound that is looser than the
// former one counts at once, and each that is stricter from the moment on at which it is first met: how fast that has to be is no
// promise.
type sampler struct {
	fleet fleet
	stop  func() // it looks no more; returns when the last look is over

	mu           sync.Mutex // guards what follows
	wanted       promise
	above, below promise // whose bounds are in force: how many machines may exist, how many have to be available
	samples      int
	peak         int // most machines that were seen, those on their way out included
	broken       []string
	judged       bool
}

// watch samples until the verdict. While the API server is away nothing is seen.
func (f fleet) watch(t *testing.T, p promise) *sampler {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	s := &sampler{fleet: f, wanted: p, above: p, below: p, stop: func() { cancel(); <-over }}
	go func() {
		defer close(over)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
				s.look(ctx)
			}
		}
	}()
	t.Cleanup(func() {
		if s.stop(); !s.judged { // the test fails already: this may be why
			assert.Empty(t, s.broken)
		}
	})
	return s
}

// verdict fails the test when a promise was broken, or when a new one never came into force.
func (s *sampler) verdict(t *testing.T) {
	t.Helper()
	rig.Eventually(t, 20*time.Second, "both bounds of the size that is wanted are in force", func() (bool, any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.above == s.wanted && s.below == s.wanted || len(s.broken) > 0, []promise{s.above, s.below}
	})
	s.stop()
	s.judged = true
	t.Logf("%d samples, %d machines at the most", s.samples, s.peak)
	require.Empty(t, s.broken)
	require.NotZero(t, s.samples)
}

// scale changes the size of the fleet, and what is promised with it. Nothing is sampled in between.
func (s *sampler) scale(t *testing.T, replicas int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted.replicas = replicas
	if s.wanted.most() >= s.above.most() {
		s.above = s.wanted
	}
	if s.wanted.least() <= s.below.least() {
		s.below = s.wanted
	}
	s.fleet.Scale(t, replicas)
}

// look takes one sample.
func (s *sampler) look(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.fleet.view(ctx, s.wanted)
	if err != nil {
		return
	}
	s.samples++
	s.peak = max(s.peak, v.live+v.going)
	breaks := func(format string, values ...any) {
		if len(s.broken) == mostTold {
			return
		}
		s.broken = append(s.broken, time.Now().Format(time.TimeOnly)+": "+fmt.Sprintf(format, values...)+fmt.Sprintf("; wanted are %d", s.wanted.replicas))
	}
	if most := s.above.most(); v.existing > most {
		breaks("%d machines, of which %d go; %d replicas and maxSurge %d allow %d", v.live+v.going, v.going, s.above.replicas, s.above.surge, most)
	}
	if least := s.below.least(); v.available < least {
		breaks("%d machines available; %d replicas and maxUnavailable %d need %d", v.available, s.below.replicas, s.below.unavailable, least)
	}
	if v.sized && v.places <= s.wanted.most() {
		s.above = s.wanted
	}
	if v.sized && v.settled && v.available >= s.wanted.least() {
		s.below = s.wanted
	}
}

// view is what one sample saw.
type view struct {
	live, going int  // machines
	existing    int  // that hold a place
	places      int  // that machines hold, or those will that are yet to be made
	available   int  // machines
	sized       bool // all sets have the size that follows from what is wanted now
	settled     bool // no set has machines left to delete
}

// view reads the sets before their machines: what the sets do meanwhile, they do for the size that they were seen with, or a later one.
func (f fleet) view(ctx context.Context, p promise) (view, error) {
	options := metav1.ListOptions{LabelSelector: "pool=" + f.Name}
	sets, err := r.Machines.MachineV1alpha1().MachineSets(f.Namespace).List(ctx, options)
	if err != nil {
		return view{}, err
	}
	machines, err := r.Machines.MachineV1alpha1().Machines(f.Namespace).List(ctx, options)
	if err != nil {
		return view{}, err
	}
	v := view{sized: true, settled: true}
	live := map[types.UID]int{}
	for _, m := range machines.Items {
		if m.DeletionTimestamp != nil {
			v.going++
			continue
		}
		v.live++
		if owner := metav1.GetControllerOf(&m); owner != nil {
			live[owner.UID]++
		}
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
			v.available++
		}
	}
	v.existing, v.places = v.live+v.going, v.live+v.going
	if p.early {
		v.existing, v.places = v.live, v.live
	}
	for _, set := range sets.Items {
		size, seen, here := int(set.Spec.Replicas), int(set.Status.ObservedReplicas), live[set.UID]
		v.places += max(size, seen, here) - here
		v.settled = v.settled && here <= size && seen == size
		v.sized = v.sized && (size == 0 || set.Annotations[v1alpha1.AnnotationDesiredReplicas] == strconv.Itoa(p.replicas))
	}
	return v, nil
}
