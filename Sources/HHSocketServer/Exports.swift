// SPDX-License-Identifier: Apache-2.0
// The code of a server also names statuses and endpoints, and generated code names messages; its configuration takes a
// `Logger`, and it is a `Service`: with these exports, one import is enough.
@_exported import HHSocketLink
@_exported import HHSocketMessage
@_exported import Logging
@_exported import ServiceLifecycle
