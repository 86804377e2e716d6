package serve

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/activities/kube"
)

// An activity learns of its cancellation only from the response to a heartbeat.
func TestHeartbeatsAreNotThrottled(t *testing.T) {
	options := WorkerOptions()
	assert.Equal(t, kube.HeartbeatInterval, options.MaxHeartbeatThrottleInterval)
	assert.Equal(t, kube.HeartbeatInterval, options.DefaultHeartbeatThrottleInterval)
}
