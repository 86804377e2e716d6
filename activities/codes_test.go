package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/activities"
	"millwright/provider"
)

// What each method does about each code; the spec's table of codes and calls, with our reactions.
func TestEveryCodeOfEveryCall(t *testing.T) {
	t.Parallel()
	for _, code := range provider.Codes() {
		shown := &activities.Problem{Reason: code.String(), Message: "no", React: activities.ReactionTo(code), Failures: 1}
		for name, row := range map[string]struct {
			step   func(*office) any
			method provider.Method // that fails
			done   provider.Code   // that is no failure
		}{
			"CreateInstance":                      {func(o *office) any { return o.CreateInstance }, provider.MethodCreateInstance, provider.OK},
			"InitializeInstance":                  {func(o *office) any { return o.InitializeInstance }, provider.MethodInitializeInstance, provider.Unimplemented},
			"DeleteInstance":                      {func(o *office) any { return o.DeleteInstance }, provider.MethodDeleteInstance, provider.NotFound},
			"InstanceStatus":                      {func(o *office) any { return o.InstanceStatus }, provider.MethodInstanceStatus, provider.OK},
			"the status that DeleteInstance asks": {func(o *office) any { return o.DeleteInstance }, provider.MethodInstanceStatus, provider.NotFound},
		} {
			t.Run(code.String()+" of "+name, func(t *testing.T) {
				o := newOffice(t, class())
				o.cloud.Fail(row.method, 0, provider.Errorf(code, "no"))
				answer, err := o.ask(row.step(o), instanceCall)
				deleting := row.method == provider.MethodInstanceStatus && name != "InstanceStatus"
				switch {
				case deleting && (code == provider.NotInitialized || code == provider.OutOfRange):
					assertFailure(t, err, activities.TypeTerminating, true)
					return
				case code == row.done, deleting && code == provider.Unimplemented:
					require.NoError(t, err)
					assert.Nil(t, answer.Problem)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, shown, answer.Problem)
			})
		}
	}
}

func TestP23_OnlyACloudThatIsSureSaysThatAnInstanceIsGone(t *testing.T) {
	t.Parallel()
	for _, code := range provider.Codes() {
		o := newOffice(t, class())
		o.cloud.Fail(provider.MethodInstanceStatus, 0, provider.Errorf(code, "no"))
		answer, err := o.ask(o.InstanceStatus, instanceCall)
		require.NoError(t, err)
		assert.Equal(t, code == provider.NotFound, answer.Gone, code)
	}
	t.Run("P23: an instance that is there is not", func(t *testing.T) {
		o := newOffice(t, class())
		_, err := o.ask(o.CreateInstance, instanceCall)
		require.NoError(t, err)
		answer, err := o.ask(o.InstanceStatus, instanceCall)
		require.NoError(t, err)
		assert.Equal(t, instanceOne(), answer)

		require.True(t, o.cloud.Vanish("uid-m"))
		answer, err = o.ask(o.InstanceStatus, instanceCall)
		require.NoError(t, err)
		assert.True(t, answer.Gone)
	})
	t.Run("P23: nothing is known of it without its class", func(t *testing.T) {
		in := instanceCall
		in.Class = "other"
		o := newOffice(t, class())
		answer, err := o.ask(o.InstanceStatus, in)
		require.NoError(t, err)
		assert.False(t, answer.Gone)
	})
}
