/* What monitors ask of NVML and this device does not have: sensors, clocks, ECC, MIG and the like.
 * A GPU that lacks one of these says so, and monitors show "N/A"; that a function is not there at
 * all, most of them do not expect.  No argument is looked at, so none is declared. */
enum { NVML_ERROR_NOT_SUPPORTED = 3 };

#define ABSENT(name)                                                                               \
    __attribute__((visibility("default"))) int nvml##name(void);                                   \
    int nvml##name(void)                                                                           \
    {                                                                                              \
        return NVML_ERROR_NOT_SUPPORTED;                                                           \
    }

/* sensors */
ABSENT(DeviceGetFanSpeed)
ABSENT(DeviceGetFanSpeed_v2)
ABSENT(DeviceGetNumFans)
ABSENT(DeviceGetTemperature)
ABSENT(DeviceGetTemperatureV)
ABSENT(DeviceGetTemperatureThreshold)
ABSENT(DeviceGetSamples)
ABSENT(DeviceGetViolationStatus)

/* power */
ABSENT(DeviceGetPerformanceState)
ABSENT(DeviceGetPowerState)
ABSENT(DeviceGetPowerUsage)
ABSENT(DeviceGetPowerManagementMode)
ABSENT(DeviceGetPowerManagementLimit)
ABSENT(DeviceGetPowerManagementLimitConstraints)
ABSENT(DeviceGetPowerManagementDefaultLimit)
ABSENT(DeviceGetEnforcedPowerLimit)
ABSENT(DeviceGetTotalEnergyConsumption)

/* clocks */
ABSENT(DeviceGetClock)
ABSENT(DeviceGetClockInfo)
ABSENT(DeviceGetMaxClockInfo)
ABSENT(DeviceGetApplicationsClock)
ABSENT(DeviceGetDefaultApplicationsClock)
ABSENT(DeviceGetMaxCustomerBoostClock)
ABSENT(DeviceGetSupportedMemoryClocks)
ABSENT(DeviceGetSupportedGraphicsClocks)
ABSENT(DeviceGetCurrentClocksThrottleReasons)
ABSENT(DeviceGetSupportedClocksThrottleReasons)
ABSENT(DeviceGetCurrentClocksEventReasons)
ABSENT(DeviceGetSupportedClocksEventReasons)

/* counters of use */
ABSENT(DeviceGetUtilizationRates)
ABSENT(DeviceGetEncoderUtilization)
ABSENT(DeviceGetDecoderUtilization)
ABSENT(DeviceGetJpgUtilization)
ABSENT(DeviceGetOfaUtilization)
ABSENT(DeviceGetProcessUtilization)
ABSENT(DeviceGetPcieThroughput)
ABSENT(DeviceGetPcieReplayCounter)
ABSENT(DeviceGetAccountingMode)
ABSENT(DeviceGetAccountingStats)
ABSENT(DeviceGetAccountingPids)

/* errors of memory */
ABSENT(DeviceGetEccMode)
ABSENT(DeviceGetDefaultEccMode)
ABSENT(DeviceGetTotalEccErrors)
ABSENT(DeviceGetDetailedEccErrors)
ABSENT(DeviceGetMemoryErrorCounter)
ABSENT(DeviceGetRetiredPages)
ABSENT(DeviceGetRetiredPages_v2)
ABSENT(DeviceGetRetiredPagesPendingStatus)
ABSENT(DeviceGetRemappedRows)
ABSENT(EventSetCreate)
ABSENT(EventSetWait)
ABSENT(EventSetWait_v2)
ABSENT(EventSetFree)
ABSENT(DeviceRegisterEvents)
ABSENT(DeviceGetSupportedEventTypes)

/* the board */
ABSENT(DeviceGetSerial)
ABSENT(DeviceGetBoardId)
ABSENT(DeviceGetBoardPartNumber)
ABSENT(DeviceGetMultiGpuBoard)
ABSENT(DeviceGetVbiosVersion)
ABSENT(DeviceGetInforomVersion)
ABSENT(DeviceGetInforomImageVersion)
ABSENT(DeviceGetGspFirmwareVersion)
ABSENT(DeviceGetGspFirmwareMode)
ABSENT(DeviceGetBAR1MemoryInfo)
ABSENT(DeviceGetMemoryBusWidth)
ABSENT(DeviceGetNumGpuCores)
ABSENT(DeviceGetCpuAffinity)
ABSENT(DeviceGetMemoryAffinity)
ABSENT(DeviceGetTopologyCommonAncestor)
ABSENT(DeviceGetTopologyNearestGpus)
ABSENT(DeviceGetNvLinkVersion)
ABSENT(DeviceGetNvLinkErrorCounter)

/* settings */
ABSENT(DeviceGetPersistenceMode)
ABSENT(DeviceSetPersistenceMode)
ABSENT(DeviceSetComputeMode)
ABSENT(DeviceGetDisplayMode)
ABSENT(DeviceGetDisplayActive)
ABSENT(DeviceGetDriverModel)
ABSENT(DeviceGetDriverModel_v2)
ABSENT(DeviceGetVirtualizationMode)
ABSENT(DeviceGetMPSComputeRunningProcesses_v3)

/* MIG */
ABSENT(DeviceGetMigMode)
ABSENT(DeviceSetMigMode)
ABSENT(DeviceGetMaxMigDeviceCount)
ABSENT(DeviceGetMigDeviceHandleByIndex)
ABSENT(DeviceGetDeviceHandleFromMigDeviceHandle)
ABSENT(DeviceGetGpuInstanceId)
ABSENT(DeviceGetComputeInstanceId)
ABSENT(DeviceGetAttributes_v2)
