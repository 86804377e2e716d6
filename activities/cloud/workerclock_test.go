package cloud_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
)

// An instance boots only with a token that is valid by the server's clock.
func TestTheClockOfAWorkerDoesNotExpireTheTokenOfAnInstance(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 10 * time.Minute, "right": 0, "behind": -10 * time.Minute} {
		for left, reason := range map[time.Duration]string{5 * time.Minute: "", -5 * time.Minute: kube.ReasonTokenGone} {
			t.Run(name+", "+left.String()+" left", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := activitiestest.Worker{ClockAhead: ahead}
					o, in := newBootstrapWorld(
						t,
						map[string]string{"userData": userDataTemplate},
						activitiestest.NewTokenSecret(func(s *corev1.Secret) {
							s.Data["expiration"] = []byte(k.ServerTime().Add(left).Format(time.RFC3339))
						}),
					)
					answer, err := activitiestest.ExecuteActivity[cloud.InstanceAnswer](t, o.CreateInstance, in, k.ExecuteActivity)
					require.NoError(t, err)
					if reason == "" {
						assert.Nil(t, answer.Problem)
						return
					}
					require.NotNil(t, answer.Problem)
					assert.Equal(t, reason, answer.Problem.Reason)
				})
			})
		}
	}
}
