// SPDX-License-Identifier: Apache-2.0
// The code of a screen also names requests, tasks and errors: one import is enough.
@_exported import HHSocketRPC
