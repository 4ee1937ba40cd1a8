// SPDX-License-Identifier: Apache-2.0
// What both ends of a connection have is in a module of its own, for servers. To users this is one module, which also
// exports what that one does.
@_exported import HHSocketLink
