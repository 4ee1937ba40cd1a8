// SPDX-License-Identifier: Apache-2.0
// Frames and requests carry a `ByteBuffer`, deadlines are `NIODeadline`s, a configuration takes an `EventLoopGroup`:
// with this export, one import is enough. The module is exported as a whole because the operators of an exported type
// are not exported with it: `.now() + .seconds(30)` would not compile. `Logger` is not exported to apps, whose files
// often import `os`, which has a `Logger` too: `configuration.logger = .init(label: "…")` does not need its name.
@_exported import NIOCore
