// SPDX-License-Identifier: Apache-2.0
/// A notification of the user; an object's instead of a closure where possible.
package enum SocketCallback: Sendable, TurnHandler {
    case work(any CallbackWork)
    case closure(@Sendable () -> Void)

    package static func run(at pointer: UnsafeMutableRawPointer) {
        pointer.takeHandler(Self.self).run()
    }

    package consuming func run() {
        switch self {
        case .work(let work): work.callBack()
        case .closure(let closure): closure()
        }
    }
}

/// An object that runs its own callback.
package protocol CallbackWork: AnyObject, Sendable {
    func callBack()
}
