package kube_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"millwright/activities/kube"
)

func TestFreshTokensAreTakenOnceAndForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		issued, a, b := &kube.FreshTokens{}, kube.TokenRef{Name: "a"}, kube.TokenRef{Name: "b"}
		first, second := &corev1.Secret{}, &corev1.Secret{}
		issued.Put("shop", a, first)
		assert.Nil(t, issued.Take("shop", b))
		assert.Nil(t, issued.Take("other", a), "a Secret of the same name in the target cluster of another namespace")
		assert.Same(t, first, issued.Take("shop", a))
		assert.Nil(t, issued.Take("shop", a), "once")

		issued.Put("shop", a, first)
		time.Sleep(30 * time.Second)
		issued.Put("shop", a, second)
		time.Sleep(45 * time.Second)
		synctest.Wait()
		assert.Same(t, second, issued.Take("shop", a), "the end of the first is not the end of the second")
		issued.Put("shop", a, first)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Nil(t, issued.Take("shop", a))
	})
	var none *kube.FreshTokens
	none.Put("shop", kube.TokenRef{}, &corev1.Secret{})
	assert.Nil(t, none.Take("shop", kube.TokenRef{}))
}
