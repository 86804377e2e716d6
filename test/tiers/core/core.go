// Package core lists the integration tests of make test. The tests cover the main function once per kind of object, the
// most important faults, admission, rights, an adoption, the check before a migration, and the core of Cluster API. All
// other integration tests run only in make test-all.
package core

// ListTestsByPackage returns the names of the tests by their package below test/integration. The names in the list are
// unique.
func ListTestsByPackage() map[string][]string {
	return map[string][]string{
		"admission": {"TestAdmission"},
		"rights":    {"TestRolesGrantOnlyNeededRights"},
		"kills":     {"TestAProcessIsKilledInACreationADrainAndARollout", "TestAWorkerIsKilledAfterItsReport"},
		"chain": {
			"TestMCMScenarios",
			"TestCreationIsInterruptedByADeletion",
			"TestMissingClassAndSecretAreShown",
			"TestNodeLossSetsUnknown",
			"TestSecretClassAndDeploymentAreDeletedTogether",
			"TestAClassWaitsForItsMachines",
			"TestSignalsThatArriveAsRunsEndAreNotLost",
			"TestLeakedSecretsAreFound",
			"TestTakeoverCheckReportsAnActiveMCM",
		},
		"life": {
			"TestJoinThatNeverHappensFailsOnTime",
			"TestDeadNodeIsReplaced",
			"TestReplacementIsHeldIfMostNodesDieAtOnce",
			"TestCreationsContinueWhenTheQuotaHasRoom",
			"TestCreationsContinueWhenTheSecretIsCorrected",
			"TestNodeIsUpdatedInPlace",
			"TestPreservedMachineFailsAndStays",
			"TestBootstrapTokenExistsOnlyDuringTheJoin",
			"TestNodeGetsTheFieldsOfItsTemplate",
			"TestCopiesOfMachinesNeverDeleteInstancesOfTheOriginals",
		},
		"drain": {
			"TestBudgetThatLoosensEndsTheDrain",
			"TestBudgetThatNeverLoosensEscalatesTheDrain",
			"TestPodsWithVolumesMoveOneAfterTheOther",
			"TestStuckDrainTakesRequests",
			"TestDrainRulesDecideWhichPodsAreDrainedAndWhen",
		},
		"sets": {
			"TestSetFromCreationToDeletion",
			"TestFiftyOrphansAreAdopted",
			"TestASetIsFrozenAndUnfrozen",
			"TestSweepDeletesOnlyTheInstanceWithoutAMachine",
			"TestScaleDownDeletesExactlyTheMarkedMachines",
		},
		"rollouts": {
			"TestAllMachinesAreReplacedWithinTheBounds",
			"TestSizeAndTemplateChangeDuringARollout",
			"TestRolloutIsPausedAndResumed",
			"TestRolloutIsCancelledRolledBackAndUndone",
			"TestInPlaceUpdateAndRollback",
			"TestRecreateMakesNoNewMachineBeforeTheLastOldOneIsGone",
			"TestOnDeleteReplacesOnlyDeletedMachines",
			"TestStagesAndAutomaticRollback",
		},
		"explain": {"TestBlockedMachineIsExplainedAsFields", "TestKubectlRunsThePlugin"},
		"capi": {
			"TestSetIsScaledFromZeroToThreeToOneAndDeleted",
			"TestDeploymentIsCreatedRolledOutAndDeleted",
			"TestASetIsHandedOverAndBackWithoutReplacingAMachine",
			"TestBudgetBlocksADrainUntilItAllowsTheEviction",
			"TestAnUnhealthyMachineIsReplaced",
		},
	}
}
