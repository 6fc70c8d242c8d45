/**
 * How many drafts a step of one text is given: more while all are right, fewer while most are wrong, since a step takes longer
 * the more tokens it has. Numbers are one less than a power of two, which is how many rows captured steps have.
 */
export class Reach {
  private level = 1;

  /** @param most drafts of a step */
  constructor(private readonly most: number) {}

  /** 3 at first. */
  get drafts(): number {
    return Math.min(this.most, 2 ** (this.level + 1) - 1);
  }

  /** Takes note of a step: how many drafts it checked, and how many of them were right. */
  report(checked: number, accepted: number): void {
    const { drafts, most } = this;
    if (checked === drafts && accepted === checked && drafts < most) this.level++;
    else if (2 * accepted < checked && this.level > 0) this.level--;
  }
}
