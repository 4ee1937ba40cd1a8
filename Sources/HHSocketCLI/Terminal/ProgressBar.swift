// SPDX-License-Identifier: Apache-2.0
/// A progress bar on a terminal.
struct ProgressBar {
    /// The progress of an operation.
    struct Progress {
        var done: UInt64
        /// Nothing is drawn while it is 0.
        var total: UInt64
    }

    private static let width = 40
    private let drawing: Task<Void, Never>
    private let draw: @Sendable () -> Void

    /// Starts drawing; nil if stderr is not a terminal.
    static func following(label: String, _ progress: @escaping @Sendable () -> Progress) -> ProgressBar? {
        guard StandardError.isTerminal else { return nil }
        let draw = { @Sendable in
            if let text = self.text(label, progress()) { StandardError.write("\r\(text)") }
        }
        let drawing = Task {
            while !Task.isCancelled {
                draw()
                try? await Task.sleep(for: .milliseconds(20))
            }
        }
        return ProgressBar(drawing: drawing, draw: draw)
    }

    /// Draws the last state and ends the line.
    func finish() async {
        self.drawing.cancel()
        await self.drawing.value
        self.draw()
        StandardError.write("\n")
    }

    /// Returns the line, without its end; nil while there is nothing to draw.
    static func text(_ label: String, _ progress: Progress) -> String? {
        guard progress.total > 0 else { return nil }
        let share = min(1, Double(progress.done) / Double(progress.total))
        let filled = Int(share * Double(self.width))
        let bar = String(repeating: "#", count: filled) + String(repeating: ".", count: self.width - filled)
        return "\(label) [\(bar)] \(Int(share * 100)) %"
    }
}
