// SPDX-License-Identifier: Apache-2.0
#if canImport(UIKit)
import ChatModel
import Observation
import UIKit

/// The banner and the last note, in a view controller.
final class ChatViewController: UIViewController {
    private let model: ChatModel
    private let banner = UILabel()
    private let lastNote = UILabel()

    init(model: ChatModel) {
        self.model = model
        super.init(nibName: nil, bundle: nil)
    }

    @available(*, unavailable) required init?(coder: NSCoder) { nil }

    override func viewDidLoad() {
        super.viewDidLoad()
        for label in [self.banner, self.lastNote] { self.view.addSubview(label) }
        self.update()
    }

    /// Shows the model, now and after each change.
    private func update() {
        withObservationTracking {
            self.banner.text = self.model.status.banner
            self.lastNote.text = self.model.notes.last?.message.text
        } onChange: { [weak self] in
            // Called before the change, on the thread that makes it.
            Task { @MainActor in self?.update() }
        }
    }
}
#endif
