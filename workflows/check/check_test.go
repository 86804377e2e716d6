package check_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"millwright/activities/activitiestest"
	"millwright/activities/cloud"
	"millwright/activities/kube"
	"millwright/workflows/check"
)

func runCheck(t *testing.T, answer func(context.Context, kube.Ref) (cloud.CheckResult, error)) check.Result {
	t.Helper()
	env := activitiestest.NewWorkflowEnvironment()
	env.RegisterActivity(&cloud.Activities{})
	env.OnActivity("CheckClass", mock.Anything, kube.Ref{Namespace: "shop", Name: "small"}).Return(answer)
	env.ExecuteWorkflow(
		check.Provider,
		check.Input{Class: kube.Ref{Namespace: "shop", Name: "small"}, Provider: "virtual"},
	)
	require.NoError(t, env.GetWorkflowError())
	var result check.Result
	require.NoError(t, env.GetWorkflowResult(&result))
	return result
}

func TestAProviderIsAskedOnce(t *testing.T) {
	asked := 0
	require.Equal(
		t,
		check.Result{CheckResult: cloud.CheckResult{Instances: 3}},
		runCheck(t, func(context.Context, kube.Ref) (cloud.CheckResult, error) {
			asked++
			return cloud.CheckResult{Instances: 3}, nil
		}),
	)
	require.Equal(t, 1, asked)
}

func TestCheckReportsAMissingWorker(t *testing.T) {
	result := runCheck(t, func(context.Context, kube.Ref) (cloud.CheckResult, error) {
		return cloud.CheckResult{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	})
	require.True(t, result.NoWorker)
	require.NotEmpty(t, result.Failure)
}

func TestCheckReportsAnUnreachableAPIServer(t *testing.T) {
	result := runCheck(t, func(context.Context, kube.Ref) (cloud.CheckResult, error) {
		return cloud.CheckResult{}, errors.New("connection refused")
	})
	require.False(t, result.NoWorker)
	require.Equal(t, "connection refused", result.Failure)
}
