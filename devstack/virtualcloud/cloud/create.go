package cloud

import (
	"context"
	"errors"
	"hash/fnv"
	"math"
	"strings"
	"time"

	"millwright/provider"
	"millwright/provider/virtual"
)

// errRequestExpired is the error of a create request that came after its NotAfter. The answer then has the reason
// virtual.ReasonExpired.
var errRequestExpired = errors.New("expired")

// pendingCreate is an accepted create request without an answer.
type pendingCreate struct {
	request       virtual.CreateRequest
	resetCount    int
	acceptTime    time.Time     // time at which the cloud stores the record
	runningTime   time.Time     // time at which the instance runs and the cloud answers
	notAfterGrace time.Duration // the cloud may store the record until NotAfter plus this time
}

// createInstance creates an instance. As in a real cloud, an accepted request takes effect even if the client closes
// the connection. If the client closes the connection before the answer, createInstance returns an error, but the
// instance is created.
func (c *Cloud) createInstance(ctx context.Context, request virtual.CreateRequest) (virtual.Instance, error) {
	if err := validateCreate(request); err != nil {
		return virtual.Instance{}, err
	}
	now := time.Now()
	if err := c.checkRequestExpiry(request, now, 0); err != nil {
		return virtual.Instance{}, err
	}
	c.mu.Lock()
	b := c.behaviour
	way := pendingCreate{request: request, resetCount: c.resetCount, notAfterGrace: time.Duration(b.AcceptLatency)}
	c.mu.Unlock()
	way.acceptTime = now.Add(way.notAfterGrace)
	latency := classValueOrDefault(request.Spec.CreateLatency, b.CreateLatency) + b.ExtraLatency.Create
	way.runningTime = now.Add(time.Duration(latency) + createLatencyOffset(request))
	if way.runningTime.Before(way.acceptTime) {
		way.runningTime = way.acceptTime
	}
	if !way.runningTime.After(now) {
		return c.storeOrReplayCreate(way)
	}
	type result struct {
		instance virtual.Instance
		err      error
	}
	done := make(chan result, 1)
	c.addToPendingCreateCount(1)
	c.pendingCreates.Go(func() {
		instance, err := c.completeCreate(way)
		// Decrement before the answer, so that Stats.Creating does not count answered requests.
		c.addToPendingCreateCount(-1)
		done <- result{instance, err}
	})
	select {
	case r := <-done:
		return r.instance, r.err
	case <-ctx.Done():
		return virtual.Instance{}, provider.Errorf(provider.Canceled, "the client went away")
	}
}

// createLatencyOffset returns the difference between an instance's create latency and its class's create latency. The
// difference is between -maxCreateDeviation and +maxCreateDeviation, and depends only on the instance's name.
func createLatencyOffset(request virtual.CreateRequest) time.Duration {
	if request.Spec.CreateSpread == nil {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(request.Name)) // a hash never returns an error
	part := 2*float64(h.Sum32())/math.MaxUint32 - 1
	return time.Duration(part * float64(*request.Spec.CreateSpread))
}

// completeCreate stores the instance's record at the time way.acceptTime, and returns the instance at the time
// way.runningTime.
func (c *Cloud) completeCreate(way pendingCreate) (virtual.Instance, error) {
	if err := c.sleepUntil(way.acceptTime); err != nil {
		return virtual.Instance{}, err
	}
	instance, err := c.storeOrReplayCreate(way)
	if err != nil || instance.State == virtual.StateRunning {
		return instance, err
	}
	if err := c.sleepUntil(way.runningTime); err != nil {
		return virtual.Instance{}, err
	}
	instance.State = virtual.StateRunning
	return instance, nil
}

// storeOrReplayCreate stores the instance's record. If the client token has a live instance already,
// storeOrReplayCreate returns this instance instead.
func (c *Cloud) storeOrReplayCreate(way pendingCreate) (virtual.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	request := way.request
	if way.resetCount != c.resetCount {
		return virtual.Instance{}, provider.Errorf(provider.Aborted, "the cloud was reset")
	}
	if err := c.checkRequestExpiryLocked(request, now, way.notAfterGrace); err != nil {
		return virtual.Instance{}, err
	}
	if earlier := c.state.records[c.state.latestNumberByToken[request.ClientToken]]; c.behaviour.HonorClientTokens &&
		request.ClientToken != "" && earlier != nil && earlier.existsAtTime(now) {
		c.stats.TokenReplays++
		return earlier.instanceAtTime(now), nil
	}
	if err := c.checkQuota(request, now); err != nil {
		return virtual.Instance{}, err
	}
	return c.createRecord(request, now, way.runningTime)
}

// createRecord stores the record of a new instance. The caller holds c.mu.
func (c *Cloud) createRecord(request virtual.CreateRequest, now, runs time.Time) (virtual.Instance, error) {
	if runs.Before(now) {
		runs = now
	}
	bootLatency := classValueOrDefault(request.Spec.BootLatency, c.behaviour.BootLatency) + c.behaviour.ExtraLatency.Boot
	r := instanceRecord{
		Number:      c.state.nextInstanceNumber,
		Name:        request.Name,
		Tags:        request.Tags,
		Spec:        request.Spec,
		ClientToken: request.ClientToken,
		AcceptedAt:  now,
		RunningAt:   runs,
		BootedAt:    runs.Add(time.Duration(bootLatency)),
	}
	if r.NodeInitializationDelay = time.Duration(c.behaviour.NodeInitializationDelay); c.behaviour.ChooseNodeNames {
		r.NodeName = "ip-" + strings.ReplaceAll(r.address(), ".", "-")
	}
	if err := c.commitRecord(entryCreated, r, request.UserData); err != nil {
		return virtual.Instance{}, err
	}
	c.logger.Debug("instance accepted", "instance", r.id(), "machine", r.Tags.MachineName)
	c.registry.scheduleSync(r.Number, time.Until(r.BootedAt))
	return r.instanceAtTime(now), nil
}

// checkQuota returns an error if a quota allows no further instance. The caller holds c.mu.
func (c *Cloud) checkQuota(request virtual.CreateRequest, now time.Time) error {
	spec := request.Spec
	if spec.Quota == nil && len(c.behaviour.Quotas) == 0 {
		return nil
	}
	keys := func(s virtual.Spec) []string {
		return []string{"total", s.Zone, s.InstanceType, s.Zone + "/" + s.InstanceType}
	}
	used, ofClass := map[string]int{}, 0
	for _, r := range c.state.liveRecords(now) {
		for _, key := range keys(r.Spec) {
			used[key]++
		}
		if r.Tags.Class == request.Tags.Class && r.Tags.Cluster == request.Tags.Cluster {
			ofClass++
		}
	}
	for _, key := range keys(spec) {
		if limit, limited := c.behaviour.Quotas[key]; limited && used[key] >= limit {
			return provider.Errorf(provider.ResourceExhausted, "quota of %d instances for %s is used up", limit, key)
		}
	}
	if spec.Quota != nil && ofClass >= *spec.Quota {
		return provider.Errorf(
			provider.ResourceExhausted,
			"quota of %d instances for class %s is used up",
			*spec.Quota,
			request.Tags.Class,
		)
	}
	return nil
}

// checkRequestExpiry returns an error if now is after the request's NotAfter plus grace.
func (c *Cloud) checkRequestExpiry(request virtual.CreateRequest, now time.Time, grace time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checkRequestExpiryLocked(request, now, grace)
}

func (c *Cloud) checkRequestExpiryLocked(request virtual.CreateRequest, now time.Time, grace time.Duration) error {
	if request.NotAfter.IsZero() || !now.After(request.NotAfter.Add(grace)) {
		return nil
	}
	c.stats.ExpiredRequests++
	late := now.Sub(request.NotAfter.Add(grace)).Round(time.Millisecond)
	refusal := provider.Errorf(provider.Aborted, "the request came %s after its time", late)
	refusal.Cause = errRequestExpired
	return refusal
}

// CreateByHand creates an instance at once, regardless of faults, quotas and client tokens.
func (c *Cloud) CreateByHand(request virtual.CreateRequest) (virtual.Instance, error) {
	if err := validateCreate(request); err != nil {
		return virtual.Instance{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	request.ClientToken = ""
	now := time.Now()
	return c.createRecord(request, now, now)
}

func (c *Cloud) addToPendingCreateCount(change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.PendingCreates += change
}

// classValueOrDefault returns the class's value, or the cloud's value if the class has none.
func classValueOrDefault(class *virtual.Duration, cloud virtual.Duration) virtual.Duration {
	if class != nil {
		return *class
	}
	return cloud
}
