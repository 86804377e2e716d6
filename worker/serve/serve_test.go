package serve

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/activities/kube"
)

// A cancellation arrives with the answer to a heartbeat.
func TestHeartbeatsAreNotThrottled(t *testing.T) {
	options := Options()
	assert.Equal(t, kube.HeartbeatEvery, options.MaxHeartbeatThrottleInterval)
	assert.Equal(t, kube.HeartbeatEvery, options.DefaultHeartbeatThrottleInterval)
}
