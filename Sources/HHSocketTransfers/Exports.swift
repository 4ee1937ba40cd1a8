// SPDX-License-Identifier: Apache-2.0
// Users name files, hashes and errors, which are those of both ends: one import is enough.
@_exported import HHSocketTransferValues
