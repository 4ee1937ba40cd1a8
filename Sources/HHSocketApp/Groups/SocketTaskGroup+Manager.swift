// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers

extension SocketTaskGroup {
    /// Adds a request of a manager, which still owns it: when the manager is released, the request ends as cancelled.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - manager: The manager that makes the call.
    ///   - weight: The request's weight in ``fractionCompleted``; 1 by default, at least 0.
    ///   - completionHandler: Called exactly once, as by ``APIManager/dispatch(_:refreshHandler:completionHandler:)``,
    ///     with `cancelled` even if the request never began. The group is complete after it has returned, not before.
    public func add<Value>(
        _ request: APIRequest<Value>,
        to manager: APIManager,
        weight: Int = 1,
        completionHandler: @escaping @Sendable (Result<APIResponse<Value>, SocketError>) -> Void = { _ in }
    ) {
        self.add(weight: weight) { end in
            ManagedCall(request, by: manager) { result in
                completionHandler(result)
                end(result.error)
            }
        }
    }
}

/// A manager's request that has yet to begin, or has begun.
private final class ManagedCall<Value: Sendable>: SocketTaskGroupMember {
    typealias Completion = @Sendable (Result<APIResponse<Value>, SocketError>) -> Void

    private enum Phase {
        case suspended(Completion)
        /// The request is being begun; `isCancelled` if it must be cancelled right afterwards.
        case beginning(isCancelled: Bool)
        case begun(identifier: Int)
        case over
    }

    private struct State {
        /// Weak, so that the request ends with its manager.
        weak var manager: APIManager?
        var phase: Phase
    }

    private let request: APIRequest<Value>
    private let transport: any APITransport
    private let state: NIOLockedValueBox<State>

    init(_ request: APIRequest<Value>, by manager: APIManager, completion: @escaping Completion) {
        self.request = request
        self.transport = manager.transport
        self.state = NIOLockedValueBox(State(manager: manager, phase: .suspended(completion)))
    }

    func resume() {
        let begins: (APIManager?, Completion)? = self.state.withLockedValue { state in
            guard case .suspended(let completion) = state.phase else { return nil }
            state.phase = .beginning(isCancelled: false)
            return (state.manager, completion)
        }
        guard let (manager, completion) = begins else { return }
        guard let manager else {
            self.state.withLockedValue { $0.phase = .over }
            return self.end(completion)
        }
        let identifier = manager.dispatch(self.request, completionHandler: completion)
        let isCancelled = self.state.withLockedValue { state in
            defer { state.phase = .begun(identifier: identifier) }
            if case .beginning(let isCancelled) = state.phase { return isCancelled }
            return false
        }
        if isCancelled { manager.cancelTask(withIdentifier: identifier) }
    }

    func cancel() {
        var completion: Completion?
        let begun: (APIManager?, Int)? = self.state.withLockedValue { state in
            switch state.phase {
            case .suspended(let handler):
                completion = handler
                state.phase = .over
            case .beginning:
                state.phase = .beginning(isCancelled: true)
            case .begun(let identifier):
                return (state.manager, identifier)
            case .over:
                break
            }
            return nil
        }
        if let (manager, identifier) = begun { manager?.cancelTask(withIdentifier: identifier) }
        if let completion { self.end(completion) }
    }

    /// Reports that the request was cancelled before it began, on the queue of other completions.
    private func end(_ completion: @escaping Completion) {
        self.transport.performCallback {
            completion(.failure(SocketError(.cancelled, message: "the request was cancelled before it began")))
        }
    }
}
